package ledger_test

import (
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// What the application had when all was given back is handed out again if it comes here, and not counted; what was settled is not.
func TestGaveBack(t *testing.T) {
	run(t, func(o *ledger.Options) { o.RedeliversAll, o.Others = false, true }, func(x *x) {
		had, settled := pulsar.NewMessageID(1, 1, 0, 0), pulsar.NewMessageID(1, 2, 0, 0)
		for _, id := range []pulsar.MessageID{had, settled} {
			x.deliver(message{id: id})
		}
		x.settle(settled)
		x.GaveBack()
		x.Received("t", had)
		d, v := x.deliver(message{id: had})
		require.Equal(x, ledger.Deliver, v)
		require.Zero(x, d.Count)
		_, v = x.deliver(message{id: settled})
		require.Equal(x, ledger.AckDuplicate, v)
	})
}
