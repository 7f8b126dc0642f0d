package ledger_test

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// A batch keeps its buffer alive, whichever of its messages is kept, and each of its messages has properties of its own.
func TestMemoryOfABatch(t *testing.T) {
	run(t, nil, func(x *x) {
		buffer := make([]byte, 3*10_000)
		for i := range int32(2) {
			id := ofBatch{pulsar.NewMessageID(1, 1, i+1, 0)}
			_, v := x.deliver(message{id: id, payload: buffer[(i+1)*10_000 : (i+2)*10_000], props: map[string]string{"text": string(make([]byte, 5000))}})
			require.Equal(x, ledger.Deliver, v)
		}
		bytes := x.Stats().BufferedBytes
		require.Greater(x, bytes, int64(3*10_000+2*(5000+512)))
		require.Less(x, bytes, int64(3*10_000+2*(5000+512)*5/4))
	})
}

// The last message of a batch is larger than all others, and does not tell how large these are: the first one has.
func TestMemoryOfABatchWithALargeMessage(t *testing.T) {
	run(t, nil, func(x *x) {
		buffer := make([]byte, 10_000)
		for i, begin := range []int{0, 10, 20} {
			_, v := x.deliver(message{id: ofBatch{pulsar.NewMessageID(1, 1, int32(i), 0)}, payload: buffer[begin:]})
			require.Equal(t, ledger.Deliver, v)
			if i < 2 {
				x.settle(ofBatch{pulsar.NewMessageID(1, 1, int32(i), 0)})
			}
		}
		require.Less(t, x.Stats().BufferedBytes, int64(11_000))
	})
}

// What the application holds counts up to the whole limit, and takes the room of what waits.
func TestHold(t *testing.T) {
	const one = 10 << 10
	limit := func(o *ledger.Options) { o.MemoryLimit = 10 * one * 9 / 8 }
	run(t, limit, func(x *x) {
		next := int64(0)
		deliver := func() (ledger.Delivery, pulsar.Message, ledger.Name) {
			next++
			msg := message{id: pulsar.NewMessageID(1, next, 0, 0), payload: make([]byte, one-512)}
			d, v := x.deliver(msg)
			require.Equal(x, ledger.Deliver, v)
			return d, msg, ledger.Name{ID: msg.id}
		}
		for range 8 {
			d, msg, _ := deliver()
			x.Nack(d, time.Hour, msg, ledger.Failed)
		}
		require.EqualValues(x, 8*one, x.Stats().BufferedBytes)
		held := 0
		var last ledger.Name
		for range 20 {
			_, msg, name := deliver()
			if x.Hold(name, msg) {
				held, last = held+1, name
			}
			require.LessOrEqual(x, x.Stats().BufferedBytes, int64(10*one*9/8))
			if held == 4 {
				require.EqualValues(x, 9*one, x.Stats().BufferedBytes, "no more is dropped than makes a little room")
			}
		}
		require.Equal(x, 11, held)
		require.Equal(x, 8, x.Stats().Waiting)
		_, msg, name := deliver()
		require.False(x, x.Hold(name, msg))
		x.settle(last.ID)
		require.True(x, x.Hold(name, msg))
		require.True(x, x.Hold(last, msg), "of what is settled nothing is kept")
	})
}

// A message that is withdrawn from the channel is kept though the limit has no room for it, and counts with all that it has; only until the
// application takes it.
func TestMemoryOfWhatIsOffered(t *testing.T) {
	const one = 10 << 10
	for _, batch := range []bool{false, true} {
		run(t, func(o *ledger.Options) { o.MemoryLimit = one / 2 }, func(x *x) {
			for entry := range int64(5) {
				m := message{id: id(entry), payload: make([]byte, one)}
				if batch {
					m.id = ofBatch{pulsar.NewMessageID(1, entry, 1, 0)}
				}
				d, v := x.deliver(m)
				require.Equal(t, ledger.Deliver, v)
				for range 2 {
					_, ok := x.Offer(d)
					require.True(t, ok)
					x.Offered(d, false)
					require.Greater(t, x.Stats().BufferedBytes, int64(one+512))
					require.Less(t, x.Stats().BufferedBytes, int64(2*one))
					require.True(t, x.Next(&d, false))
					require.NotNil(t, d.Message)
				}
				_, ok := x.Offer(d)
				require.True(t, ok)
				x.Offered(d, true)
				require.Zero(t, x.Stats().BufferedBytes)
			}
		})
	}
}
