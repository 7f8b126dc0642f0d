package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// What upstream still had to read of a lost connection is received after the loss, and cleared before the next connection: what comes by
// that is not taken for what was received before it, and dropped for ever. Where it was not cleared, it is the first that is taken.
func TestReceivedBetweenTwoConnections(t *testing.T) {
	for name, c := range map[string]struct{ cleared, oneTopic bool }{"cleared": {true, true}, "taken": {false, true},
		"cleared, one of several topics": {true, false}, "taken, one of several topics": {false, false}} {
		t.Run(name, func(t *testing.T) {
			cleared := c.cleared
			run(t, func(o *ledger.Options) { o.RedeliversAll, o.OneTopic = false, c.oneTopic }, func(x *x) {
				for i := range int64(3) {
					x.arrive(i)
				}
				x.Ledger.Disconnected()
				late := message{id: id(3), payload: make([]byte, 100)}
				x.Received("t", late.id)
				time.Sleep(time.Second)
				x.Connected()
				if !cleared {
					_, v := x.deliver(late)
					require.Equal(x, ledger.Deliver, v)
				}
				for i := range int64(5) {
					want := ledger.Deliver
					if i < 3 || i == 3 && !cleared {
						want = ledger.Keep // the application has it
					}
					d, v := x.comes(i)
					require.Equal(x, want, v, "%d", i)
					require.False(x, d.Doubtful, "%d", i)
				}
			})
		})
	}
}

// A message of the new connection may be received before there is told to be one. It is not asked for while it is in the queue: the broker
// would count that. With several topics the connection may be another's.
func TestReceivedBeforeTheConnectionIsTold(t *testing.T) {
	run(t, func(o *ledger.Options) { o.RedeliversAll, o.OneTopic = false, true }, func(x *x) {
		d, _ := x.arrive(1)
		x.Nack(d, 8*time.Second, nil, ledger.Failed)
		x.Ledger.Disconnected()
		m := message{id: id(1), payload: make([]byte, 100)}
		x.Received("t", m.id)
		x.Connected()
		time.Sleep(time.Minute)
		require.Empty(x, x.requests())
		again, v := x.deliver(m)
		require.Equal(x, ledger.Deliver, v)
		require.False(x, again.Doubtful)
	})
}

// The connection is lost once more before anything of the last one was taken: what comes by the next is delivered, and what was in the queue is not.
func TestAConnectionIsLostBeforeAnythingOfItWasTaken(t *testing.T) {
	run(t, func(o *ledger.Options) { o.RedeliversAll, o.OneTopic = false, true }, func(x *x) {
		queued := message{id: id(1)}
		x.Received("t", queued.id)
		x.Disconnected()
		_, v := x.deliver(queued)
		require.Equal(x, ledger.Drop, v)
		x.Received("t", id(1)) // and cleared
		x.Disconnected()
		for i := range int64(3) {
			d, v := x.comes(1 + i)
			require.Equal(x, ledger.Deliver, v, "%d", i)
			require.False(x, d.Doubtful, "%d", i)
		}
	})
}

// Of what is received by the next connection only the first tells what came before: later ones are received while others are in the queue.
func TestMoreIsReceivedThanIsTaken(t *testing.T) {
	run(t, func(o *ledger.Options) { o.RedeliversAll, o.OneTopic = false, true }, func(x *x) {
		x.verdict(ledger.Deliver, 0)
		x.Disconnected()
		var queue []message
		for i := range int64(8) {
			m := message{id: id(1 + i)}
			x.Received("t", m.id)
			if queue = append(queue, m); len(queue) < 3 {
				continue
			}
			d, v := x.deliver(queue[0])
			require.Equal(x, ledger.Deliver, v, "%d", i)
			require.False(x, d.Doubtful, "%d", i)
			queue = queue[1:]
		}
	})
}

// What the old connection had read late is received too before there is told to be another, and is cleared. What the new one brings before and
// after that is delivered, all of it: the broker would not send it again.
func TestReceivedBehindALateMessageBeforeTheConnectionIsTold(t *testing.T) {
	for _, redeliversAll := range []bool{false, true} {
		run(t, func(o *ledger.Options) { o.RedeliversAll, o.OneTopic = redeliversAll, true }, func(x *x) {
			x.arrive(0)
			x.Ledger.Disconnected()
			x.Received("t", id(9)) // and cleared
			var queue []message
			for i := range int64(4) {
				if i == 2 {
					x.Connected()
				}
				m := message{id: id(1 + i)}
				x.Received("t", m.id)
				queue = append(queue, m)
			}
			for i, m := range queue {
				_, v := x.deliver(m)
				require.Equal(x, ledger.Deliver, v, "%d", i)
			}
		})
	}
}
