package ui

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRateCountsFromThePreviousFigures(t *testing.T) {
	at := time.Unix(1000, 0)
	of := func(at time.Time, topic string, succeeded, failed uint64) *figures {
		return &figures{At: at, Subs: []subscriptionFigures{{Topic: topic, Name: "billing",
			Service: &serviceFigures{Succeeded: succeeded, Failed: failed}}}}
	}
	for _, c := range []struct {
		old  *figures
		want float64
	}{{nil, 0}, {of(at, "orders", 10, 5), 3}, {of(at, "others", 10, 5), 0},
		{of(at.Add(5*time.Second), "orders", 1, 1), 0},
		{&figures{At: at, Subs: []subscriptionFigures{{Topic: "orders", Name: "billing"}}}, 0}} {
		f := of(at.Add(5*time.Second), "orders", 20, 10)
		f.rates(c.old)
		require.InDelta(t, c.want, f.Subs[0].Service.Rate, 1e-9)
	}
}
