package ledger_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// What was asked for in vain is another consumer's. When it comes here again the broker's count is the only one that is known, and it
// is asked for again: that was not so of a message of a batch.
func TestABatchThatAnotherConsumerHadMeanwhile(t *testing.T) {
	for name, again := range map[string]func(*x, pulsar.MessageID) uint32{
		"comes again": func(x *x, id pulsar.MessageID) uint32 {
			d, v := x.deliver(message{id: id, count: 7})
			require.Equal(x, ledger.Deliver, v)
			return d.Count
		},
		"is nacked by its id": func(x *x, id pulsar.MessageID) uint32 {
			x.Adopt(ledger.Name{ID: id}, "t", x.child, 7)
			d, _, _ := x.Find(ledger.Name{ID: id})
			return d.Count
		},
	} {
		t.Run(name, func(t *testing.T) {
			shared := func(o *ledger.Options) { o.RedeliversAll, o.Keeps = false, false }
			run(t, shared, func(x *x) {
				first, second := pulsar.NewMessageID(1, 1, 0, 0), pulsar.NewMessageID(1, 1, 1, 0)
				for _, id := range []pulsar.MessageID{first, second} {
					x.deliver(message{id: id})
				}
				x.settle(first)
				d, _, _ := x.Find(ledger.Name{ID: second})
				x.Nack(d, time.Second, nil, ledger.Failed)
				for range 4 {
					time.Sleep(10 * time.Second)
					x.Idle()
				}
				synctest.Wait()
				require.Len(t, x.requests(), 2)
				_, _, known := x.Find(ledger.Name{ID: second})
				require.False(t, known)

				require.EqualValues(t, 7, again(x, second))
				d, _, _ = x.Find(ledger.Name{ID: second})
				x.Nack(d, time.Second, nil, ledger.Failed)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				require.Len(t, x.requests(), 3)
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
		"of three":        {func(index int32) pulsar.MessageID { return ofThree(1, index) }, whole},
		"of unknown size": {func(index int32) pulsar.MessageID { return pulsar.NewMessageID(1, 1, index, 0) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(x *x) {
				for i := range int32(3) {
					x.deliver(message{id: c.id(i)})
				}
				for _, step := range []struct {
					index   int32
					refused bool
					again   pulsar.MessageID
				}{
					{0, false, nil}, {1, true, nil}, {2, false, nil}, {1, false, c.want},
				} {
					var s ledger.Settling
					x.Settle(ledger.Name{ID: c.id(step.index)}, &s)
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

// The log of attempts counts messages and the broker entries: what siblings failed does not count for a message that the log knows.
func TestTheLogCountsMessagesOfABatch(t *testing.T) {
	run(t, nil, func(x *x) {
		var d ledger.Delivery
		msg := message{id: &ofBatch{pulsar.NewMessageID(1, 1, 0, 0)}, count: 7}
		require.Equal(t, ledger.Deliver, x.Arrive(pulsar.ConsumerMessage{Consumer: x.child, Message: msg}, ledger.Retry{Attempts: 2}, &d))
		require.EqualValues(t, 2, d.Count)
		require.Positive(t, d.Hand)
		msg = message{id: id(2), count: 7}
		require.Equal(t, ledger.Deliver, x.Arrive(pulsar.ConsumerMessage{Consumer: x.child, Message: msg}, ledger.Retry{Attempts: 2}, &d))
		require.EqualValues(t, 7, d.Count, "of a message that is in none the larger count holds")
	})
}

// A batch that failed here as a whole goes back to the broker before its last delivery, so that another consumer may try it. One of which
// some are settled waits here.
func TestABatchThatFailedAsAWholeGoesBack(t *testing.T) {
	for name, indexAcks := range map[string]bool{"index acks": true, "no index acks": false} {
		t.Run(name, func(t *testing.T) {
			shared := func(o *ledger.Options) {
				o.RedeliversAll, o.Others, o.IndexAcks, o.MaxDeliveries = false, true, keptIf(indexAcks), 2
			}
			failed := func(x *x, from int32) (requests int) {
				for index := range int32(3) {
					d, v := x.deliver(message{id: ofThree(1, index)})
					require.Equal(t, ledger.Deliver, v)
					if index < from {
						x.settle(d.ID)
					} else {
						x.Nack(d, time.Second, d.Message, ledger.Failed)
					}
				}
				time.Sleep(2 * time.Second)
				return len(x.requests())
			}
			run(t, shared, func(x *x) { require.Equal(t, 1, failed(x, 0)) })
			run(t, shared, func(x *x) { require.Zero(t, failed(x, 1)) })
		})
	}
}

// Whichever of a batch is settled last, beside an acknowledgement in a transaction too, upstream hears of the whole batch.
func TestABatchIsAcknowledgedBesideATransaction(t *testing.T) {
	whole := func(o *ledger.Options) { o.WholeBatches = true }
	name := func(index int32) ledger.Name { return ledger.Name{ID: ofThree(1, index)} }
	begin := func(x *x, index int32, undecided bool, want ledger.Standing) *ledger.Settling {
		s := &ledger.Settling{Undecided: undecided}
		require.Equal(x, want, x.Settle(name(index), s))
		return s
	}
	for test, last := range map[string]func(x *x, first *ledger.Settling) (again pulsar.MessageID){
		"the other is only noted": func(x *x, first *ledger.Settling) pulsar.MessageID {
			begin(x, 2, false, ledger.Settled)
			return x.Settled(first)
		},
		"the other is in a transaction": func(x *x, first *ledger.Settling) pulsar.MessageID {
			second := begin(x, 2, true, ledger.Unsettled)
			require.Nil(x, x.Settled(first))
			return x.Settled(second)
		},
	} {
		t.Run(test, func(t *testing.T) {
			run(t, whole, func(x *x) {
				for i := range int32(3) {
					x.deliver(message{id: ofThree(1, i)})
				}
				begin(x, 0, false, ledger.Settled)
				first := begin(x, 1, true, ledger.Unsettled)
				require.Equal(t, ofThree(1, 1), first.ToAck)
				require.Equal(t, pulsar.NewMessageID(1, 1, -1, 0), last(x, first))
			})
		})
	}
}

// The id of a batch, and of none of its messages, stands for all of them.
func TestTheIDOfABatch(t *testing.T) {
	batch := ledger.Name{ID: pulsar.NewMessageID(1, 1, -1, 0)}
	settledAll := func(x *x) {
		for i := range int32(3) {
			require.Equal(x, ledger.Settled, x.Settle(ledger.Name{ID: ofThree(1, i)}, &ledger.Settling{}), "%d", i)
		}
		all, _ := x.HadOf(batch)
		require.Empty(x, all)
	}
	for test, settle := range map[string]func(x *x){
		"acknowledged": func(x *x) { x.SettleWhole(batch) },
		"acknowledged cumulatively": func(x *x) {
			again, _ := x.SettleTo(batch, batch.ID)
			require.Nil(x, again)
		},
	} {
		t.Run(test, func(t *testing.T) {
			run(t, nil, func(x *x) {
				for i := range int32(3) {
					x.deliver(message{id: ofThree(1, i)})
				}
				x.settle(ofThree(1, 1))
				consumer, before, id := x.Newest(batch)
				require.Equal(t, []any{x.child, nil, batch.ID}, []any{consumer, before, id})
				all, whole := x.HadOf(batch)
				require.True(t, whole)
				require.Equal(t, []ledger.Name{{ID: ofThree(1, 0), Topic: "t"}, {ID: ofThree(1, 2), Topic: "t"}}, all)
				_, whole = x.HadOf(ledger.Name{ID: ofThree(1, 0)})
				require.False(t, whole)
				settle(x)
				settledAll(x)
			})
		})
	}
}

// A whole batch is acknowledged while one of its messages is on offer, and a Seek comes first.
func TestAWholeBatchIsSettledDuringASeek(t *testing.T) {
	run(t, nil, func(x *x) {
		var d ledger.Delivery
		for index := range int32(3) {
			d, _ = x.deliver(message{id: ofThree(1, index)})
		}
		_, ok := x.Offer(d)
		require.True(t, ok)
		go x.Clear()
		synctest.Wait()
		go x.SettleWhole(ledger.Name{ID: pulsar.NewMessageID(1, 1, -1, 0)})
		synctest.Wait()
		x.Offered(d, false)
		synctest.Wait()
		require.Zero(t, x.Len())
	})
}
