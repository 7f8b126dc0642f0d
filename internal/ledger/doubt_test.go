package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// After a lost connection the broker sends again what it has no acknowledgement of, to whichever consumer it chooses. Until that has been taken
// it is not asked for: the copy may be in the queue of a slow application, and the broker would send another consumer a second one.
func TestWhatTheNextConnectionBringsIsNotAskedFor(t *testing.T) {
	singles := func(o *ledger.Options) { o.Rewinds, o.Keeps = false, ledger.Keeps{Batches: true} }
	for name, comes := range map[string]bool{"it comes": true, "another consumer has it": false} {
		t.Run(name, func(t *testing.T) {
			run(t, singles, func(x *x) {
				d, _ := x.arrive(1)
				x.Disconnected()
				x.Connected()
				x.Nack(d, time.Second, d.Message, ledger.Failed)
				time.Sleep(time.Minute)
				require.Empty(t, x.asked)
				if comes {
					d, v := x.arrive(1)
					require.Equal(t, ledger.Deliver, v)
					require.Equal(t, uint32(1), d.Count)
					return
				}
				x.others(2)
				require.Len(t, x.asked, 1)
			})
		})
	}
}
