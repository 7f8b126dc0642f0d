package suite

import (
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/wiretest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// behind returns the broker as clients see it through a wire with this round trip.
func behind(t testing.TB, b *testkit.Broker, roundTrip time.Duration) (*testkit.Broker, *wiretest.Wire) {
	t.Helper()
	target := strings.TrimPrefix(b.URL, "pulsar://")
	w := wiretest.New(t, target, roundTrip)
	require.Len(t, w.Addr, len(target), "it takes the place of the broker's address in answers to look-ups")
	far := *b
	far.URL = "pulsar://" + w.Addr
	far.Connect(pulsar.ClientOptions{})
	return &far, w
}
