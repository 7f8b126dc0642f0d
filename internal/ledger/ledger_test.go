package ledger_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type message struct {
	pulsar.Message
	id      pulsar.MessageID
	payload []byte
	count   uint32
	props   map[string]string
}

func (m message) ID() pulsar.MessageID          { return m.id }
func (m message) Topic() string                 { return "t" }
func (m message) Payload() []byte               { return m.payload }
func (m message) RedeliveryCount() uint32       { return m.count }
func (m message) Properties() map[string]string { return m.props }

type consumer struct{ pulsar.Consumer }

// x is a Ledger of a consumer whose queue has room for three deliveries.
type x struct {
	*testing.T
	*ledger.Ledger
	child *consumer

	mu     sync.Mutex
	asked  []pulsar.MessageID
	covers atomic.Int32 // calls for AckAgain
}

// requests returns what was asked for by now.
func (x *x) requests() []pulsar.MessageID {
	synctest.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.asked
}

func run(t *testing.T, change func(*ledger.Options), test func(x *x)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		y := &x{T: t, child: &consumer{}}
		o := ledger.Options{RedeliversAll: true, Keeps: true, ReconnectEvents: true, MemoryLimit: 1 << 20, Queue: 3, AckGroup: ledger.AckGroup{Size: 3},
			SendDelay: time.Second, AskDelay: time.Second, Calls: ledger.Calls{
				Ask: func(_ pulsar.Consumer, _ string, id pulsar.MessageID) {
					y.mu.Lock()
					defer y.mu.Unlock()
					y.asked = append(y.asked, id)
				},
				Wake:     func() {},
				AckAgain: func() { y.covers.Add(1) },
				GiveUp:   func(ledger.Delivery) {},
			}}
		if change != nil {
			change(&o)
		}
		y.Ledger = ledger.New(o)
		defer y.Close()
		test(y)
	})
}

func id(entry int64) pulsar.MessageID { return pulsar.NewMessageID(1, entry, 0, 0) }

// Disconnected tells of a connection that is lost, and back at once.
func (x *x) Disconnected() {
	x.Ledger.Disconnected()
	x.Connected()
}

// deliver has a message delivered.
func (x *x) deliver(m message) (d ledger.Delivery, v ledger.Verdict) {
	v = x.Arrive(pulsar.ConsumerMessage{Consumer: x.child, Message: m}, ledger.Retry{}, &d)
	return d, v
}

// arrive has an entry delivered.
func (x *x) arrive(entry int64) (ledger.Delivery, ledger.Verdict) {
	return x.deliver(message{id: id(entry), payload: make([]byte, 100)})
}

// comes has a message received and delivered, the first after a connection was lost.
func (x *x) comes(entry int64) (ledger.Delivery, ledger.Verdict) {
	m := message{id: id(entry), payload: make([]byte, 100)}
	x.Received("t", m.id)
	return x.deliver(m)
}

func (x *x) ack(entry int64) {
	x.Helper()
	x.settle(id(entry))
}

func (x *x) settle(id pulsar.MessageID) {
	x.Helper()
	var s ledger.Settling
	require.Equal(x, ledger.Unsettled, x.Settle(ledger.Name{ID: id}, &s))
	require.Nil(x, x.Settled(&s))
}

func (x *x) verdict(want ledger.Verdict, entry int64) {
	x.Helper()
	_, v := x.arrive(entry)
	require.Equal(x, want, v)
}

// swallow has a copy of a settled message delivered.
func (x *x) swallow(entry int64) {
	x.Helper()
	d, v := x.arrive(entry)
	require.Equal(x, ledger.AckDuplicate, v)
	x.AckedAgain(ledger.Name{ID: d.ID, Topic: "t"}, nil, true)
}

// others has other entries delivered and settled.
func (x *x) others(from int64) {
	x.Helper()
	for entry := range int64(20) {
		x.verdict(ledger.Deliver, from+entry)
		x.ack(from + entry)
		time.Sleep(5 * time.Second)
	}
}

// A partition without a received message may have messages in the queue that came by a connection which is lost: the broker sends
// them again.
func TestAStreamThatBeginsWhileItsConnectionIsLost(t *testing.T) {
	run(t, nil, func(x *x) {
		x.Disconnected()
		x.verdict(ledger.Deliver, 1)
		require.True(t, x.Received("t", id(1)))
		x.ack(1)
		time.Sleep(time.Minute)
		x.verdict(ledger.AckDuplicate, 1)
	})
}

// Likewise of a partition that another consumer got before anything of it was taken here.
func TestAStreamThatBeginsInactive(t *testing.T) {
	run(t, nil, func(x *x) {
		x.Activate("t", false)
		x.verdict(ledger.Drop, 1)
		x.Activate("t", true)
		x.verdict(ledger.Drop, 1) // this one too
		_, v := x.comes(1)
		require.Equal(t, ledger.Deliver, v)
		x.ack(1)
		time.Sleep(time.Minute)
		require.Empty(t, x.requests())
	})
}

// What was received before a partition became active is not handed out. It is asked for if the broker does not send it again: nothing comes, or
// what comes first is later.
func TestWhatWasReceivedBeforeItBecameActive(t *testing.T) {
	for name, c := range map[string]struct {
		comes []int64
		asks  int
	}{"comes again": {[]int64{4, 5}, 0}, "comes again after others": {[]int64{1, 2, 3, 4, 5}, 0}, "something later comes": {[]int64{6}, 1}, "nothing comes": {nil, 1}} {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(x *x) {
				x.Activate("t", true)
				x.verdict(ledger.Drop, 4)
				x.verdict(ledger.Drop, 5)
				for i, entry := range c.comes {
					m := message{id: id(entry), payload: make([]byte, 100)}
					x.Received("t", m.id)
					if i == 0 {
						x.verdict(ledger.Drop, 5) // out of the buffer
					}
					_, v := x.deliver(m)
					require.Equal(t, ledger.Deliver, v)
				}
				time.Sleep(time.Minute)
				require.Len(t, x.requests(), c.asks)
			})
		})
	}
}

// What was received since a partition became active is handed out, and nothing from before, though a connection is lost, perhaps another's, before it is taken.
func TestAConnectionIsLostAfterItBecameActive(t *testing.T) {
	run(t, nil, func(x *x) {
		x.Activate("t", true)
		first := []message{{id: id(0)}, {id: id(1)}, {id: id(2)}}
		for _, m := range first {
			x.Received("t", m.id)
		}
		x.Disconnected()
		x.verdict(ledger.Drop, 5) // out of the buffer
		for _, m := range first {
			_, v := x.deliver(m)
			require.Equal(t, ledger.Deliver, v)
		}
	})
}

// An operator moves the cursor of a Failover subscription back: what was settled long before is handed out.
func TestCursorResetOfAPartitionThatBecameActive(t *testing.T) {
	run(t, nil, func(x *x) {
		x.Activate("t", true)
		x.comes(1)
		x.ack(1)
		time.Sleep(time.Minute)
		x.Disconnected()
		x.Activate("t", true)
		_, v := x.comes(1)
		require.Equal(t, ledger.Deliver, v)
	})
}

// What was settled long before a connection was lost comes again only if an operator has moved the cursor back: it is delivered. What
// was settled just before may have been lost.
func TestWhatComesAgainAfterAConnectionWasLost(t *testing.T) {
	for first, verdict := range map[int64]ledger.Verdict{1: ledger.Deliver, 2: ledger.AckDuplicate} {
		run(t, nil, func(x *x) {
			for entry := range int64(4) {
				x.verdict(ledger.Deliver, 1+entry)
			}
			x.ack(1)
			time.Sleep(time.Minute)
			x.ack(2) // not surely at the broker
			x.Disconnected()
			x.Received("t", id(first))
			x.verdict(verdict, first)
		})
	}
}

// The memory limit counts a payload once, and what does not fit is asked for.
func TestMemoryLimit(t *testing.T) {
	run(t, func(o *ledger.Options) { o.MemoryLimit = 1000 }, func(x *x) {
		for entry := range int64(2) {
			d, _ := x.arrive(1 + entry)
			_, _, kept := x.Nack(d, time.Minute, d.Message, ledger.Failed)
			require.Equal(t, entry == 0, kept)
		}
		require.EqualValues(t, 640, x.Stats().BufferedBytes)
		require.Equal(t, 2, x.Stats().Waiting)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		var d ledger.Delivery
		ok := x.Next(&d, false)
		require.True(t, ok)
		require.Equal(t, id(1), d.Message.ID())
		require.Equal(t, []pulsar.MessageID{id(2)}, x.requests())
		require.EqualValues(t, 640, x.Stats().BufferedBytes, "the application has it")
		x.ack(1)
		require.Zero(t, x.Stats().BufferedBytes)
	})
}

// A nack counts for the hand-over that it is of.
func TestALateNack(t *testing.T) {
	run(t, nil, func(x *x) {
		first, _ := x.arrive(1)
		_, had, kept := x.Nack(first, 0, first.Message, ledger.Failed)
		require.True(t, had && kept)
		time.Sleep(time.Second)
		synctest.Wait()
		var second ledger.Delivery
		require.True(t, x.Next(&second, false))
		require.EqualValues(t, 1, second.Count)
		_, had, kept = x.Nack(first, 0, first.Message, ledger.Failed)
		require.False(t, had || kept)
		require.False(t, x.Next(&ledger.Delivery{}, false))
		_, had, kept = x.Nack(second, 0, second.Message, ledger.Failed)
		require.True(t, had && kept)
	})
}

// BenchmarkLedger is what a message costs that is received and acknowledged.
func BenchmarkLedger(b *testing.B) {
	l := ledger.New(ledger.Options{Queue: 1000, AckGroup: ledger.AckGroup{Size: 1000}, SendDelay: time.Second, AskDelay: time.Second,
		Calls: ledger.Calls{Wake: func() {}}})
	defer l.Close()
	cm := pulsar.ConsumerMessage{Consumer: &consumer{}}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		id := id(int64(n))
		cm.Message = &message{id: id}
		var d ledger.Delivery
		if v := l.Arrive(cm, ledger.Retry{}, &d); v != ledger.Deliver {
			b.Fatal(v)
		}
		var s ledger.Settling
		l.Settle(ledger.Name{ID: id}, &s)
		l.Settled(&s)
	}
}
