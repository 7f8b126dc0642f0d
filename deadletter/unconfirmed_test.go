package deadletter

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A broker does not answer a message that is larger than its topic allows: the error names the largest letter.
func TestUnconfirmed(t *testing.T) {
	const why = "; a topic gives no answer to a message beyond its maxMessageSize"
	synctest.Test(t, func(t *testing.T) {
		w := newWalk(nil, &Report{}, steps{})
		w.moved = time.Now()
		for i, size := range []int{10, 20_000, 30} {
			w.letters[&Letter{ID: fmt.Sprintf("1:%d:0", i), Size: size,
				to: "persistent://public/default/orders"}] = true
		}
		require.EqualError(t, w.settle(t.Context(), 0),
			"deadletter: letters that the broker did not confirm within 1m0s: 3, the largest 1:1:0 with 20000 bytes "+
				"for persistent://public/default/orders"+why)
	})
	synctest.Test(t, func(t *testing.T) {
		i := &importer{t: &Topic{o: Options{Topic: "persistent://public/default/x-DLQ"}}, pending: 2,
			open: map[int]int{3: 10, 4: 20_000}, over: make(chan stored)}
		require.EqualError(t, i.settle(t.Context(), 0),
			"deadletter: letters that the broker did not confirm within 1m0s: 2, the largest line 4 with 20000 bytes "+
				"for persistent://public/default/x-DLQ"+why)
	})
}
