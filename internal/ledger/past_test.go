package ledger_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// A copy of what is settled is not handed out, however late it comes: an application may need an hour for its queue.
func TestWhatIsSettledIsRemembered(t *testing.T) {
	run(t, nil, func(x *x) {
		x.verdict(ledger.Deliver, 1)
		x.ack(1)
		require.Zero(t, x.Len())
		x.swallow(1)
		time.Sleep(time.Hour)
		x.swallow(1)
		x.others(10)
		x.pass()
		x.swallow(1)
		x.settled(id(1))
	})
}

// settled has whoever settles or nacks a message that is settled told so.
func (x *x) settled(id pulsar.MessageID) {
	x.Helper()
	n := ledger.Name{ID: id}
	require.Equal(x, ledger.Settled, x.Settle(n, &ledger.Settling{}))
	x.Adopt(n, "t", x.child, 0)
	_, current, known := x.Find(n)
	require.True(x, known && !current)
}

// reset is what a reconnection looks like of which the broker sends an entry first.
func (x *x) reset(first int64) (v ledger.Verdict) {
	x.Disconnected()
	_, v = x.comes(first)
	return v
}

// What is acknowledged once more counts as settled when that call has returned: it may have been in line behind many.
func TestWhatIsAcknowledgedOnceMoreIsNotSure(t *testing.T) {
	for name, c := range map[string]struct {
		wait, then time.Duration // before the call returns, and after
		err        error
		verdict    ledger.Verdict
	}{
		"under way":     {time.Minute, -1, nil, ledger.AckDuplicate},
		"just returned": {time.Minute, time.Second / 2, nil, ledger.AckDuplicate},
		"long ago":      {0, time.Minute, nil, ledger.Deliver},
		"failed":        {0, time.Minute, errors.New("refused"), ledger.AckDuplicate},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(x *x) {
				x.verdict(ledger.Deliver, 1)
				x.ack(1)
				d, v := x.arrive(1)
				require.Equal(t, ledger.AckDuplicate, v)
				time.Sleep(c.wait)
				if n := (ledger.Name{ID: d.ID, Topic: "t"}); c.then >= 0 {
					require.True(t, x.IsAcking(n))
					require.Nil(t, x.AckedAgain(n, c.err, false))
					time.Sleep(c.then)
				}
				require.Equal(t, c.verdict, x.reset(1))
			})
		})
	}
}

// Nor is what was sure before less so when a copy comes late, whether it can be acknowledged once more or not.
func TestALateCopyOfWhatIsSure(t *testing.T) {
	run(t, nil, func(x *x) {
		x.verdict(ledger.Deliver, 1)
		x.ack(1)
		x.pass()
		d, v := x.arrive(1)
		require.Equal(t, ledger.AckDuplicate, v)
		require.NotNil(t, x.AckedAgain(ledger.Name{ID: d.ID, Topic: "t"}, errors.New("refused"), true))
		require.Equal(t, ledger.Deliver, x.reset(1))
	})
}

// After an operator has moved the cursor back nothing is acknowledged once more that the application has again.
func TestAnAcknowledgementOnceMoreAfterACursorReset(t *testing.T) {
	run(t, nil, func(x *x) {
		x.verdict(ledger.Deliver, 1)
		x.verdict(ledger.Deliver, 2)
		x.ack(1)
		x.ack(2)
		x.pass()
		d, v := x.arrive(1)
		require.Equal(t, ledger.AckDuplicate, v)
		n := ledger.Name{ID: d.ID, Topic: "t"}
		require.Equal(t, d.ID, x.AckedAgain(n, errors.New("refused"), true))
		require.Nil(t, x.AckedAgain(n, nil, false))
		x.pass()
		require.Equal(t, ledger.Deliver, x.reset(2))
		require.False(t, x.IsAcking(ledger.Name{ID: id(2), Topic: "t"}))
		x.verdict(ledger.Deliver, 1)
		require.False(t, x.IsAcking(n))
		require.Nil(t, x.AckedAgain(n, errors.New("refused"), true))
		x.ack(1)
	})
}

// An acknowledgement that was refused is not tried again once a Seek had the message delivered again, even if it is settled again: by its
// index acks the earlier delivery of the batch would acknowledge the rest with it.
func TestAnAcknowledgementOnceMoreOfABatchAfterASeek(t *testing.T) {
	run(t, nil, func(x *x) {
		batch := func() (ids []pulsar.MessageID) {
			for i := range int32(3) {
				ids = append(ids, ofThree(1, i))
				x.deliver(message{id: ids[i]})
			}
			return ids
		}
		x.settle(batch()[0])
		d, v := x.deliver(message{id: ofThree(1, 0)})
		require.Equal(t, ledger.AckDuplicate, v)
		n := ledger.Name{ID: d.ID, Topic: "t"}
		require.Equal(t, d.ID, x.AckedAgain(n, errors.New("refused"), true))
		x.Clear()
		x.settle(batch()[0])
		require.False(t, x.IsAcking(n))
	})
}

// Where their number alone has acknowledgements sent, those are sure that have two groups after them, and others stay in doubt for ever.
func TestAcknowledgementsSentByNumber(t *testing.T) {
	for name, c := range map[string]struct {
		after   int64
		verdict ledger.Verdict
	}{
		"two messages":  {2, ledger.AckDuplicate},
		"a few seconds": {40, ledger.Deliver},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(o *ledger.Options) { o.AckGroup.BySize = true }, func(x *x) {
				for e := range c.after {
					x.verdict(ledger.Deliver, e)
					x.ack(e)
					time.Sleep(time.Second)
				}
				time.Sleep(time.Hour)
				x.Idle()
				require.Equal(t, c.verdict, x.reset(0))
			})
		})
	}
}

// What an operator moves the cursor back to is delivered, batches that came more than once included: of those the whole was acknowledged.
func TestACursorResetToABatchThatCameAgain(t *testing.T) {
	run(t, shared, func(x *x) {
		for range 2 {
			for i := range int32(3) {
				x.deliver(message{id: ofThree(1, i)})
			}
		}
		for i := range int32(3) {
			var s ledger.Settling
			x.Settle(ledger.Name{ID: ofThree(1, i)}, &s)
			if again := x.Settled(&s); i == 2 {
				require.Equal(t, pulsar.NewMessageID(1, 1, -1, 0), again)
				require.Nil(t, x.AckedAgain(ledger.Name{ID: again, Topic: "t"}, nil, true))
			}
		}
		x.pass()
		x.Disconnected()
		x.Received("t", ofThree(1, 0))
		for i := range int32(3) {
			_, v := x.deliver(message{id: ofThree(1, i)})
			require.Equal(t, ledger.Deliver, v)
		}
	})
}

// An id that is made of numbers does not say whether it is of a batch, or of how many: the rest of that is delivered.
func TestMessagesThatWereNackedByForeignIDs(t *testing.T) {
	for _, nacked := range []int32{1, 2, 3} {
		run(t, shared, func(x *x) {
			x.verdict(ledger.Deliver, 5)
			for i := range nacked {
				n := ledger.Name{ID: pulsar.NewMessageID(1, 1, i, 0)}
				x.Adopt(n, "t", x.child, 0)
				x.settle(n.ID)
			}
			require.Equal(t, 2, x.Len(), "how many more there are is not known")
			for i := range int32(3) {
				d, v := x.deliver(message{id: ofThree(1, i)})
				if i >= nacked {
					require.Equal(t, ledger.Deliver, v)
					var s ledger.Settling
					x.Settle(ledger.Name{ID: d.ID}, &s)
					x.Settled(&s)
				} else {
					require.Equal(t, ledger.AckDuplicate, v)
					require.Nil(t, x.AckedAgain(ledger.Name{ID: d.ID, Topic: "t"}, nil, true))
				}
			}
			x.verdict(ledger.Deliver, 6)
			require.Equal(t, 2, x.Len(), "those that the application has")
			x.swallow(1)
		})
	}
}

// Where topics share ledgers, what is settled of one is not of another.
func TestAnIDOfTwoTopics(t *testing.T) {
	run(t, nil, func(x *x) {
		x.verdict(ledger.Deliver, 1)
		x.ack(1)
		x.Arrive(pulsar.ConsumerMessage{Consumer: x.child, Message: topicMessage{message{id: id(1)}, "other"}}, ledger.Retry{}, &ledger.Delivery{})
		i := id(1) // not the one that was delivered
		require.Equal(t, ledger.Unknown, x.Settle(ledger.Name{ID: i}, &ledger.Settling{}))
		require.Equal(t, ledger.Settled, x.Settle(ledger.Name{ID: i, Topic: "t"}, &ledger.Settling{}))
		require.Equal(t, ledger.Unsettled, x.Settle(ledger.Name{ID: i, Topic: "other"}, &ledger.Settling{}))
	})
}

// Where nobody tells of lost connections, what comes long after it was settled could be an operator's cursor reset.
func TestWhatIsSettledIsForgottenWhereNobodyTellsOfConnections(t *testing.T) {
	silent := func(o *ledger.Options) { o.ReconnectEvents = false }
	t.Run("idle", func(t *testing.T) {
		run(t, silent, func(x *x) {
			x.verdict(ledger.Deliver, 1)
			x.ack(1)
			x.swallow(1)
			x.pass()
			x.verdict(ledger.Deliver, 1)
		})
	})
	t.Run("busy", func(t *testing.T) {
		run(t, silent, func(x *x) {
			x.verdict(ledger.Deliver, 1)
			x.ack(1)
			time.Sleep(time.Hour)
			x.swallow(1)
			x.others(10)
			x.others(30)
			x.others(50)
			x.verdict(ledger.Deliver, 1)
		})
	})
}

// What is settled takes little room, whatever its ids. What is not sure is remembered beyond that.
func TestTheRoomOfWhatIsSettled(t *testing.T) {
	const n = 200_000
	for name, entry := range map[string]func(i int64) (ledger, entry int64){
		"one after another":        func(i int64) (int64, int64) { return i / 50_000, i % 50_000 },
		"every other":              func(i int64) (int64, int64) { return 1, 2 * i },
		"of many broker ledgers":   func(i int64) (int64, int64) { return i, 7 },
		"far from each other":      func(i int64) (int64, int64) { return 1, i << 16 },
		"up to the largest ledger": func(i int64) (int64, int64) { return 1<<62 + i/10, 1<<62 + i%10 },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(x *x) {
				at := func(i int64) message {
					l, e := entry(i)
					return message{id: pulsar.NewMessageID(l, e, 0, 0)}
				}
				take := func(from, to int64) {
					for i := from; i < to; i++ {
						m := at(i)
						if _, v := x.deliver(m); v != ledger.Deliver {
							t.Fatal(i, v)
						}
						var s ledger.Settling
						x.Settle(ledger.Name{ID: m.id}, &s)
						x.Settled(&s)
						if i%1000 == 0 {
							time.Sleep(time.Second)
						}
					}
				}
				take(0, n/10)
				before := heap()
				take(n/10, n)
				grown := heap() - before
				t.Logf("the heap grew by %d KiB", grown>>10)
				require.Less(t, grown, int64(2<<20))
				for i := int64(n - 2000); i < n; i++ {
					_, v := x.deliver(at(i))
					require.Equal(t, ledger.AckDuplicate, v)
				}
			})
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A message is found by its topic, also where another topic's with the same id arrived last, and it is not known any more that they share
// ledgers.
func TestWhatArrivedLastHidesNoOther(t *testing.T) {
	run(t, func(o *ledger.Options) { o.RedeliversAll = false }, func(x *x) {
		arrive := func(topic string, ledgerID int64) ledger.Verdict {
			var d ledger.Delivery
			id := pulsar.NewMessageID(ledgerID, 1, 0, 0)
			return x.Arrive(pulsar.ConsumerMessage{Consumer: x.child, Message: topicMessage{message{id: id}, topic}}, ledger.Retry{}, &d)
		}
		require.Equal(t, ledger.Deliver, arrive("source", 1))
		for i := range int64(1100) { // so many ledgers are forgotten
			arrive("other", 10+i)
		}
		require.Equal(t, ledger.Deliver, arrive("shadow", 1))
		arrive("source", 1) // a copy
		var s ledger.Settling
		require.Equal(t, ledger.Unsettled, x.Settle(ledger.Name{ID: pulsar.NewMessageID(1, 1, 0, 0), Topic: "shadow"}, &s))
		x.NotSettled(&s)
	})
}

// The topic that is left when the one of the last arrival is gone is the one that an id is of, also an id of nothing that is known.
func TestAnIDOfTheOnlyTopicLeft(t *testing.T) {
	run(t, func(o *ledger.Options) { o.OneTopic = true }, func(x *x) {
		d, _ := x.arrive(1)
		other := &consumer{}
		require.Equal(t, ledger.Deliver, x.Arrive(pulsar.ConsumerMessage{Consumer: other, Message: topicMessage{message{id: pulsar.NewMessageID(7, 1, 0, 0)}, "u"}},
			ledger.Retry{}, &ledger.Delivery{}))
		x.Gone(other)
		x.SettleTo(ledger.Name{ID: id(2)}, id(2))
		require.True(t, x.IsSettled(ledger.Name{ID: d.ID}))
	})
}

// An id of nothing that is known may be of a topic that sent nothing yet: no message of the one that is known is settled by it.
func TestAnIDOfAnotherTopic(t *testing.T) {
	run(t, nil, func(x *x) {
		d, _ := x.arrive(1)
		x.Nack(d, time.Second, d.Message, ledger.Failed)
		stored := pulsar.NewMessageID(20, 5, 0, 0)
		x.SettleTo(ledger.Name{ID: stored}, stored)
		require.False(t, x.IsSettled(ledger.Name{ID: d.ID}))
	})
}
