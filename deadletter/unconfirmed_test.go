package deadletter

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The broker does not answer a message that is larger than its topic allows.
func TestErrorOfUnconfirmedLettersNamesTheLargest(t *testing.T) {
	const why = ", and a message beyond the topic's maxMessageSize gets no answer"
	synctest.Test(t, func(t *testing.T) {
		w := newWalk(nil, &Report{}, steps{})
		w.moved = time.Now()
		for i, size := range []int{10, 20_000, 30} {
			w.letters[&Letter{ID: fmt.Sprintf("1:%d:0", i), Size: size,
				to: "persistent://public/default/orders"}] = true
		}
		require.EqualError(t, w.settle(t.Context(), 0),
			"deadletter: the broker did not confirm 3 letters within 1m0s; the largest is 1:1:0 (20000 bytes, to "+
				"persistent://public/default/orders)"+why)
	})
	synctest.Test(t, func(t *testing.T) {
		i := &importer{t: &Topic{o: Options{Topic: "persistent://public/default/x-DLQ"}}, pending: 2,
			open: map[int]int{3: 10, 4: 20_000}, over: make(chan stored)}
		require.EqualError(t, i.settle(t.Context(), 0),
			"deadletter: the broker did not confirm 2 letters within 1m0s; the largest is line 4 (20000 bytes, to "+
				"persistent://public/default/x-DLQ)"+why)
	})
}
