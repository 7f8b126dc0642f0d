package ledger_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// ofThree is the id of a message of a batch of three.
func ofThree(entry int64, index int32) pulsar.MessageID {
	return ofBatch{pulsar.NewMessageID(1, entry, index, 0)}
}

// part has the first of a batch of three delivered and acknowledged, of which the rest does not come.
func (x *x) part(entry int64) {
	x.Helper()
	_, v := x.deliver(message{id: ofThree(entry, 0)})
	require.Equal(x, ledger.Deliver, v)
	x.settle(ofThree(entry, 0))
}

// pass lets so much time pass, with nothing that comes, that no copy of anything is on its way.
func (x *x) pass() {
	for range 60 {
		time.Sleep(time.Second)
		x.Idle()
	}
	synctest.Wait()
}

func shared(o *ledger.Options) { o.RedeliversAll = false }

// The broker waits for the whole of a batch: what was acknowledged of one that was cut off by a lost connection comes again when
// another consumer gives it back, however much later, and is not handed out.
func TestABatchThatTwoConsumersHave(t *testing.T) {
	run(t, shared, func(x *x) {
		x.part(1)
		x.verdict(ledger.Deliver, 2)
		x.ack(2)
		x.pass()
		require.Equal(t, 1, x.Len())
		for i := range int64(2) {
			d, v := x.deliver(message{id: ofThree(1, 0)})
			require.Equal(t, ledger.AckDuplicate, v)
			x.AckedAgain(ledger.Name{ID: d.ID, Topic: "t"}, nil, true)
			x.verdict(ledger.Deliver, 3+i)
			x.ack(3 + i)
			x.pass()
		}
		for entry := range int64(100) {
			x.part(10 + entry)
		}
		x.pass()
		require.LessOrEqual(t, x.Len(), 17, "batches are remembered")
		_, v := x.deliver(message{id: ofThree(108, 0)})
		require.Equal(t, ledger.AckDuplicate, v)
		x.Disconnected()
		x.pass()
		_, v = x.deliver(message{id: ofThree(107, 0)})
		require.Equal(t, ledger.Deliver, v, "an operator may have moved the cursor back")
	})
}

// Where nobody tells of lost connections a part is forgotten like anything else: it could be an operator who brings it back.
func TestAPartWhereNobodyTellsOfConnections(t *testing.T) {
	run(t, func(o *ledger.Options) { o.RedeliversAll, o.ReconnectEvents = false, false }, func(x *x) {
		x.part(1)
		x.verdict(ledger.Deliver, 2)
		x.ack(2)
		x.pass()
		_, v := x.deliver(message{id: ofThree(1, 0)})
		require.Equal(t, ledger.Deliver, v)
	})
}

// A batch in part whose last message was given up is unsettled again once the application nacks that.
func TestAPartThatIsNackedOnceMore(t *testing.T) {
	run(t, func(o *ledger.Options) { o.RedeliversAll, o.Keeps = false, false }, func(x *x) {
		rest := ledger.Name{ID: ofThree(1, 2)}
		for index := range int32(3) {
			d, _ := x.deliver(message{id: ofThree(1, index)})
			if rest.ID = d.ID; index < 2 {
				x.settle(d.ID)
			}
		}
		nack := func() {
			d, current, _ := x.Find(rest)
			require.True(t, current)
			x.Nack(d, time.Second, nil, ledger.Failed)
		}
		nack()
		for range 60 { // it is asked for twice, and given up
			time.Sleep(time.Second)
			x.Idle()
		}
		require.Zero(t, x.Stats().Waiting)
		require.Equal(t, 1, x.Len())
		x.Adopt(rest, "t", x.child, 0)
		nack()
		x.Disconnected()
		x.verdict(ledger.Deliver, 9)
		require.Equal(t, 1, x.Stats().Waiting)
	})
}

// The part that is remembered for longest comes again with just the message that tells that another one is a part too.
func TestTheOldestPartComesAgain(t *testing.T) {
	run(t, shared, func(x *x) {
		for entry := range int64(16) {
			x.part(1 + entry)
		}
		x.pass()
		require.Equal(t, 16, x.Len())
		x.part(20)
		time.Sleep(time.Minute)
		_, v := x.deliver(message{id: ofThree(1, 0)})
		require.Equal(t, ledger.AckDuplicate, v)
	})
}

// A part comes to be remembered while more of it arrives, and once more when that is over.
func TestAPartThatArrives(t *testing.T) {
	run(t, shared, func(x *x) {
		x.part(1)
		x.verdict(ledger.Deliver, 2)
		x.ack(2)
		_, v := x.deliver(message{id: ofThree(1, 1)})
		require.Equal(t, ledger.Deliver, v)
		x.settle(ofThree(1, 1))
		for entry := range int64(8) {
			time.Sleep(time.Minute)
			x.verdict(ledger.Deliver, 3+entry)
			x.ack(3 + entry)
		}
		time.Sleep(time.Minute)
		require.Equal(t, 1, x.Len())
		x.Disconnected()
		require.Zero(t, x.Len())
	})
}

// A copy is the very delivery that tells that no more copies come, and that the batch before it was a part.
func TestTheLastCopy(t *testing.T) {
	run(t, shared, func(x *x) {
		x.part(1)
		x.verdict(ledger.Deliver, 2)
		x.ack(2)
		x.swallow(2)
		time.Sleep(time.Minute)
		for entry := range int64(4) {
			x.verdict(ledger.Deliver, 10+entry)
		}
		x.part(20)
		x.verdict(ledger.AckDuplicate, 2)
	})
}

func TestAPartOfAConsumerThatIsGone(t *testing.T) {
	run(t, shared, func(x *x) {
		x.part(1)
		x.Gone(x.child)
		require.Zero(t, x.Len())
	})
}

// A message that is ready, and being settled, keeps its payload when a copy comes for which there is no room.
func TestACopyOfAReadyMessage(t *testing.T) {
	run(t, func(o *ledger.Options) { o.RedeliversAll, o.MemoryLimit = false, 0 }, func(x *x) {
		d, _ := x.arrive(1)
		withdrawn, ok := x.Offer(d)
		require.True(t, ok)
		go func() {
			<-withdrawn
			x.Offered(d, false)
		}()
		var s ledger.Settling
		require.Equal(t, ledger.Unsettled, x.Settle(ledger.Name{ID: d.ID}, &s))
		synctest.Wait()
		x.verdict(ledger.Skip, 1)
		x.NotSettled(&s)
		var again ledger.Delivery
		require.True(t, x.Next(&again, false))
		require.NotNil(t, again.Message)
	})
}

// By index acknowledgements alone the broker may not notice that it has all of a batch of which another consumer settled some: it is asked for
// the batch once, when it surely has what was settled here.
func TestABatchOfWhichAnotherSettledTheRest(t *testing.T) {
	for name, next := range map[string]bool{"more comes": true, "nothing comes": false} {
		t.Run(name, func(t *testing.T) {
			run(t, func(o *ledger.Options) { o.RedeliversAll, o.IndexAcks = false, ledger.KeptIndexAcks }, func(x *x) {
				x.part(1)
				if next {
					x.verdict(ledger.Deliver, 2)
					x.ack(2)
				}
				require.Empty(t, x.requests())
				x.pass()
				require.Equal(t, []pulsar.MessageID{ofThree(1, 0)}, x.requests())
				for index := range int32(3) { // one that came whole
					_, v := x.deliver(message{id: ofThree(3, index)})
					require.Equal(t, ledger.Deliver, v)
					x.settle(ofThree(3, index))
				}
				x.pass()
				require.Len(t, x.requests(), 1)
				_, v := x.deliver(message{id: ofThree(1, 2)})
				require.Equal(t, ledger.Deliver, v, "the other consumer had not settled it")
				x.settle(ofThree(1, 2))
				x.pass()
				require.Len(t, x.requests(), 2)
			})
		})
	}
	for _, o := range []ledger.Options{{RedeliversAll: true, IndexAcks: ledger.KeptIndexAcks}, {}} {
		run(t, func(of *ledger.Options) { of.RedeliversAll, of.IndexAcks = o.RedeliversAll, o.IndexAcks }, func(x *x) {
			x.part(1)
			x.pass()
			require.Empty(t, x.requests())
		})
	}
}

// An entry was nacked and acknowledged by an id of numbers alone, which does not tell whether it is a batch.
func TestAnEntryOfUnknownSizeIsAskedForByItsID(t *testing.T) {
	run(t, func(o *ledger.Options) { o.RedeliversAll, o.IndexAcks = false, ledger.KeptIndexAcks }, func(x *x) {
		id := pulsar.NewMessageID(1, 9, -1, 0)
		x.Adopt(ledger.Name{ID: id}, "t", x.child, 0)
		x.settle(id)
		x.pass()
		require.Equal(t, []pulsar.MessageID{id}, x.requests())
	})
}

// The partition was away while a batch arrived. The rest of it comes by another delivery, of which upstream filters out what is being acknowledged:
// neither of the two can have the batch acknowledged, if the broker keeps no index.
func TestTheRestOfABatchAfterThePartitionWasAway(t *testing.T) {
	run(t, func(o *ledger.Options) { o.WholeBatches = true }, func(x *x) {
		for index := range int32(2) {
			x.deliver(message{id: ofThree(1, index)})
		}
		x.Activate("t", false)
		x.Activate("t", true)
		for index := range int32(2) {
			x.settle(ofThree(1, index))
		}
		rest := message{id: ofThree(1, 2)}
		x.Received("t", rest.id)
		_, v := x.deliver(rest)
		require.Equal(t, ledger.Deliver, v)
		var s ledger.Settling
		require.Equal(t, ledger.Unsettled, x.Settle(ledger.Name{ID: rest.id}, &s))
		require.EqualValues(t, -1, s.ToAck.BatchIdx(), "the whole of it")
	})
}
