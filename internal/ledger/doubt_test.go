package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// After a lost connection the broker sends again what it has no acknowledgement of, to whichever consumer it chooses. Until that has been taken
// it is not asked for: the copy may be in the queue of a slow application, and the broker would send another consumer a second one. What is
// received first tells whether the connection of this topic was lost, and not that of another.
func TestWhatTheNextConnectionBringsIsNotAskedFor(t *testing.T) {
	singles := func(o *ledger.Options) { o.Rewinds, o.Keeps = false, ledger.Keeps{Batches: true} }
	for name, c := range map[string]struct {
		received int64 // first, after the loss
		comes    bool  // the message, or another consumer has it
		asks     int   // before more is taken
	}{
		"it comes":                {1, true, 0},
		"another consumer has it": {0, false, 0},
		"of another topic":        {2, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, singles, func(x *x) {
				x.verdict(ledger.Deliver, 0)
				d, _ := x.arrive(1)
				x.Disconnected()
				x.Nack(d, time.Second, d.Message, ledger.Failed)
				time.Sleep(time.Minute)
				x.Connected()
				x.Received("t", id(c.received))
				time.Sleep(time.Minute)
				require.Len(t, x.requests(), c.asks)
				if c.comes {
					x.verdict(ledger.Hold, 0)
					d, v := x.arrive(1)
					require.Equal(t, ledger.Deliver, v)
					require.Equal(t, uint32(1), d.Count)
					return
				}
				x.others(2)
				require.Len(t, x.requests(), 1)
			})
		})
	}
}

// Nothing may be received of a topic whose connection was not lost.
func TestWhatIsDueIsAskedForWhereNothingIsReceived(t *testing.T) {
	run(t, func(o *ledger.Options) { o.Rewinds, o.Keeps = false, ledger.Keeps{Batches: true} }, func(x *x) {
		d, _ := x.arrive(1)
		x.Disconnected()
		x.Connected()
		x.Nack(d, time.Second, d.Message, ledger.Failed)
		time.Sleep(2 * time.Second)
		require.Empty(t, x.requests())
		time.Sleep(2 * time.Second)
		require.Len(t, x.requests(), 1)
	})
}
