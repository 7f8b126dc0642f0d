package ledger_test

import (
	"context"
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
}

func (m message) ID() pulsar.MessageID    { return m.id }
func (m message) Topic() string           { return "t" }
func (m message) Payload() []byte         { return m.payload }
func (m message) RedeliveryCount() uint32 { return m.count }

type consumer struct{ pulsar.Consumer }

// x is a Ledger of a consumer whose queue has room for three deliveries.
type x struct {
	*testing.T
	*ledger.Ledger
	child *consumer
	asked []pulsar.MessageID
}

func run(t *testing.T, change func(*ledger.Options), test func(x *x)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		y := &x{T: t, child: &consumer{}}
		o := ledger.Options{Rewinds: true, Keeps: ledger.Keeps{Singles: true, Batches: true}, Signals: true, HoldLimit: 1 << 20, Queue: 3, AckGroup: 3,
			SendDelay: time.Second, AskDelay: time.Second, Calls: ledger.Calls{
				Ask:    func(_ pulsar.Consumer, _ string, id pulsar.MessageID) { y.asked = append(y.asked, id) },
				Wake:   func() {},
				GiveUp: func(ledger.Delivery) {},
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

// arrive has an entry delivered.
func (x *x) arrive(entry int64) (ledger.Delivery, ledger.Verdict) {
	var d ledger.Delivery
	v := x.Arrive(pulsar.ConsumerMessage{Consumer: x.child, Message: message{id: id(entry), payload: make([]byte, 100)}}, ledger.Retry{}, &d)
	return d, v
}

func (x *x) ack(entry int64) {
	x.Helper()
	var s ledger.Settling
	standing, err := x.Settle(context.Background(), context.Background(), ledger.Name{ID: id(entry)}, &s)
	require.NoError(x, err)
	require.Equal(x, ledger.Unsettled, standing)
	require.Nil(x, x.Settled(&s))
}

func (x *x) verdict(want ledger.Verdict, entry int64) {
	x.Helper()
	_, v := x.arrive(entry)
	require.Equal(x, want, v)
}

// What was settled is forgotten when its acknowledgement is surely at the broker: no copy of it can be on its way, unless
// something was sent again.
func TestWhatIsSettledIsForgotten(t *testing.T) {
	run(t, nil, func(x *x) {
		x.verdict(ledger.Deliver, 1)
		x.ack(1)
		x.swallow(1)          // which tells that the broker sends everything again
		time.Sleep(time.Hour) // and no clock tells when that is over
		require.Equal(t, 1, x.Len())
		x.others(10)
		require.Less(t, x.Len(), 3)
	})
}

// Nor is it forgotten while it is acknowledged once more, which may be in line behind many.
func TestWhatIsAcknowledgedOnceMoreIsNotForgotten(t *testing.T) {
	run(t, nil, func(x *x) {
		x.verdict(ledger.Deliver, 1)
		x.ack(1)
		d, v := x.arrive(1)
		require.Equal(t, ledger.Swallow, v)
		x.others(10)
		x.swallow(1)
		x.others(40)
		x.AckedAgain(d.Ref, d.ID, nil)
		x.swallow(1)
		x.others(70)
		require.Less(t, x.Len(), 3)
		x.verdict(ledger.Deliver, 1)
	})
}

// swallow has a copy of a settled message delivered.
func (x *x) swallow(entry int64) {
	x.Helper()
	d, v := x.arrive(entry)
	require.Equal(x, ledger.Swallow, v)
	x.AckedAgain(d.Ref, d.ID, nil)
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

// A partition of which nothing was taken yet may have messages in the queue that came by a connection which is lost: the broker sends
// them again.
func TestAStreamThatBeginsWhileItsConnectionIsLost(t *testing.T) {
	for name, connected := range map[string]func(*x){
		"connected": func(x *x) { x.Connected() },
		"received":  func(x *x) { require.True(t, x.Received("t", id(1))) },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(x *x) {
				x.Disconnected(true)
				x.verdict(ledger.Deliver, 1)
				connected(x)
				x.ack(1)
				time.Sleep(time.Minute)
				x.verdict(ledger.Swallow, 1)
			})
		})
	}
}

// Likewise of a partition that another consumer got before anything of it was taken here.
func TestAStreamThatBeginsInactive(t *testing.T) {
	run(t, nil, func(x *x) {
		x.Activate("t", false)
		x.verdict(ledger.Drop, 1)
		x.Activate("t", true)
		x.verdict(ledger.Deliver, 1)
		x.ack(1)
	})
}

// What was settled long before a connection was lost comes again only if an operator has moved the cursor back: it is delivered. What
// was settled just before may have been lost.
func TestWhatComesAgainAfterAConnectionWasLost(t *testing.T) {
	for first, verdict := range map[int64]ledger.Verdict{1: ledger.Deliver, 2: ledger.Swallow} {
		run(t, nil, func(x *x) {
			for entry := range int64(4) {
				x.verdict(ledger.Deliver, 1+entry)
			}
			x.ack(1)
			time.Sleep(time.Minute)
			x.ack(2) // not surely at the broker
			x.Disconnected(true)
			x.Connected()
			x.Received("t", id(first))
			x.verdict(verdict, first)
		})
	}
}

// The hold limit counts a payload once, and what does not fit is asked for.
func TestHoldLimit(t *testing.T) {
	run(t, func(o *ledger.Options) { o.HoldLimit = 1000 }, func(x *x) {
		for entry := range int64(2) {
			d, _ := x.arrive(1 + entry)
			require.Equal(t, entry == 0, x.Nack(d, time.Minute, d.Message, ledger.Failed))
		}
		require.EqualValues(t, 612, x.Stats().HeldBytes)
		require.Equal(t, 2, x.Stats().Waiting)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		var d ledger.Delivery
		ok := x.Next(&d)
		require.True(t, ok)
		require.Equal(t, id(1), d.Message.ID())
		require.Equal(t, []pulsar.MessageID{id(2)}, x.asked)
		require.Zero(t, x.Stats().HeldBytes)
	})
}

// A nack counts for the hand-over that it is of.
func TestALateNack(t *testing.T) {
	run(t, nil, func(x *x) {
		first, _ := x.arrive(1)
		require.True(t, x.Nack(first, 0, first.Message, ledger.Failed))
		time.Sleep(time.Second)
		synctest.Wait()
		var second ledger.Delivery
		require.True(t, x.Next(&second))
		require.EqualValues(t, 1, second.Count)
		require.False(t, x.Nack(first, 0, first.Message, ledger.Failed))
		require.False(t, x.Next(&ledger.Delivery{}))
		require.True(t, x.Nack(second, 0, second.Message, ledger.Failed))
	})
}

// The broker waits for the whole of a batch: what was acknowledged of one that was cut off by a lost connection comes again when
// another consumer gives it back, however much later, and is not handed out.
func TestABatchThatTwoConsumersHave(t *testing.T) {
	run(t, func(o *ledger.Options) { o.Rewinds = false }, func(x *x) {
		of := func(entry int64) pulsar.MessageID { return ofBatch{pulsar.NewMessageID(1, entry, 0, 0)} }
		arrive := func(id pulsar.MessageID) (d ledger.Delivery, v ledger.Verdict) {
			v = x.Arrive(pulsar.ConsumerMessage{Consumer: x.child, Message: message{id: id}}, ledger.Retry{}, &d)
			return d, v
		}
		cutOff := func(entry int64) {
			_, v := arrive(of(entry))
			require.Equal(t, ledger.Deliver, v)
			var s ledger.Settling
			require.Equal(t, ledger.Unsettled, x.TrySettle(ledger.Name{ID: of(entry)}, &s))
			require.Nil(t, x.Settled(&s))
		}
		pass := func() { // no copy of anything is on its way
			time.Sleep(time.Minute)
			x.Idle()
			synctest.Wait()
		}
		cutOff(1)
		x.verdict(ledger.Deliver, 2)
		x.ack(2)
		pass()
		require.Equal(t, 1, x.Len())
		for range 2 {
			d, v := arrive(of(1))
			require.Equal(t, ledger.Swallow, v)
			x.AckedAgain(d.Ref, d.ID, nil)
			x.verdict(ledger.Deliver, 2)
			x.ack(2)
			pass()
		}
		for entry := range int64(100) {
			cutOff(10 + entry)
		}
		pass()
		require.LessOrEqual(t, x.Len(), 17, "batches are remembered")
		x.Disconnected(true)
		x.Connected()
		pass()
		_, v := arrive(of(109))
		require.Equal(t, ledger.Deliver, v, "an operator may have moved the cursor back")
	})
}

// BenchmarkLedger is what a message costs that is received and acknowledged.
func BenchmarkLedger(b *testing.B) {
	l := ledger.New(ledger.Options{Queue: 1000, AckGroup: 1000, SendDelay: time.Second, AskDelay: time.Second,
		Calls: ledger.Calls{Wake: func() {}}})
	defer l.Close()
	ids := make([]pulsar.MessageID, 1<<16)
	for i := range ids {
		ids[i] = id(int64(i))
	}
	cm := pulsar.ConsumerMessage{Consumer: &consumer{}}
	ctx := context.Background()
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		cm.Message = &message{id: ids[n%len(ids)]}
		var d ledger.Delivery
		if v := l.Arrive(cm, ledger.Retry{}, &d); v != ledger.Deliver {
			b.Fatal(v)
		}
		var s ledger.Settling
		_, _ = l.Settle(ctx, ctx, ledger.Name{ID: ids[n%len(ids)]}, &s)
		l.Settled(&s)
	}
}

// What was asked for in vain is another consumer's. When it comes here again the broker's count is the only one that is known, and it
// is asked for again: that was not so of a message of a batch.
func TestABatchThatAnotherConsumerHadMeanwhile(t *testing.T) {
	for name, again := range map[string]func(*x, pulsar.MessageID) uint32{
		"comes again": func(x *x, id pulsar.MessageID) uint32 {
			var d ledger.Delivery
			v := x.Arrive(pulsar.ConsumerMessage{Consumer: x.child, Message: message{id: id, count: 7}}, ledger.Retry{}, &d)
			require.Equal(x, ledger.Deliver, v)
			return d.Count
		},
		"is nacked by its id": func(x *x, id pulsar.MessageID) uint32 {
			x.Adopt(ledger.Name{ID: id}, x.child, 7)
			d, _, _ := x.Find(ledger.Name{ID: id})
			return d.Count
		},
	} {
		t.Run(name, func(t *testing.T) {
			shared := func(o *ledger.Options) { o.Rewinds, o.Keeps = false, ledger.Keeps{} }
			run(t, shared, func(x *x) {
				first, second := pulsar.NewMessageID(1, 1, 0, 0), pulsar.NewMessageID(1, 1, 1, 0)
				for _, id := range []pulsar.MessageID{first, second} {
					x.Arrive(pulsar.ConsumerMessage{Consumer: x.child, Message: message{id: id}}, ledger.Retry{}, &ledger.Delivery{})
				}
				var s ledger.Settling
				_, _ = x.Settle(context.Background(), context.Background(), ledger.Name{ID: first}, &s)
				require.Nil(t, x.Settled(&s))
				d, _, _ := x.Find(ledger.Name{ID: second})
				x.Nack(d, time.Second, nil, ledger.Failed)
				for range 4 {
					time.Sleep(10 * time.Second)
					x.Idle()
				}
				synctest.Wait()
				require.Len(t, x.asked, 2)
				_, _, known := x.Find(ledger.Name{ID: second})
				require.False(t, known)

				require.EqualValues(t, 7, again(x, second))
				d, _, _ = x.Find(ledger.Name{ID: second})
				x.Nack(d, time.Second, nil, ledger.Failed)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				require.Len(t, x.asked, 3)
			})
		})
	}
}

// ofBatch is an id of a batch of three.
type ofBatch struct{ pulsar.MessageID }

func (ofBatch) BatchSize() int32 { return 3 }

// Upstream takes a message of a batch for acknowledged though the broker refused it, and does not send it again: the whole entry is
// acknowledged then, when nothing of it is left. An id that does not say how many there are is not enough for that.
func TestABatchOfWhichAnAcknowledgementWasRefused(t *testing.T) {
	whole := pulsar.NewMessageID(1, 1, -1, 0)
	for name, c := range map[string]struct {
		id   func(index int32) pulsar.MessageID
		want pulsar.MessageID
	}{
		"of three":        {func(index int32) pulsar.MessageID { return ofBatch{pulsar.NewMessageID(1, 1, index, 0)} }, whole},
		"of unknown size": {func(index int32) pulsar.MessageID { return pulsar.NewMessageID(1, 1, index, 0) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(x *x) {
				for i := range int32(3) {
					x.Arrive(pulsar.ConsumerMessage{Consumer: x.child, Message: message{id: c.id(i)}}, ledger.Retry{}, &ledger.Delivery{})
				}
				for _, step := range []struct {
					index   int32
					refused bool
					again   pulsar.MessageID
				}{
					{0, false, nil}, {1, true, nil}, {2, false, nil}, {1, false, c.want},
				} {
					var s ledger.Settling
					x.TrySettle(ledger.Name{ID: c.id(step.index)}, &s)
					if step.refused {
						x.NotSettled(&s)
					} else {
						require.Equal(t, step.again, x.Settled(&s))
					}
				}
			})
		})
	}
}
