package ledger_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

type ofTwo struct{ pulsar.MessageID }

func (ofTwo) BatchSize() int32 { return 2 }

func halfOf(i int32) pulsar.MessageID { return &ofTwo{pulsar.NewMessageID(1, 1, i, 0)} }

// Of a batch of two, both due, the application works on one for longer than the other waits for it, or acknowledges it.
func TestABatchIsNotGivenBackWhileASiblingIsAtWork(t *testing.T) {
	for _, ack := range []bool{false, true} {
		run(t, func(o *ledger.Options) { o.RedeliversAll, o.Others = false, true }, func(x *x) {
			for i := range int32(2) {
				d, v := x.deliver(message{id: halfOf(i), payload: make([]byte, 10)})
				require.Equal(t, ledger.Deliver, v)
				_, _, kept := x.Nack(d, time.Second, d.Message, ledger.Failed)
				require.True(t, kept)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			var d ledger.Delivery
			require.True(t, x.Next(&d, false))
			if ack {
				var s ledger.Settling
				x.Settle(ledger.Name{ID: d.ID}, &s)
				x.Settled(&s)
			}
			time.Sleep(40 * time.Second)
			require.Empty(t, x.requests())
		})
	}
}

// An offer of a new message is withdrawn after a connection was lost, and what comes then is old.
func TestAnOldCopyOfWhatWaits(t *testing.T) {
	run(t, nil, func(x *x) {
		d, _ := x.arrive(1)
		x.Disconnected()
		w, ok := x.Offer(d)
		require.True(t, ok)
		go func() { <-w; x.Offered(d, false) }()
		var s ledger.Settling
		require.Equal(t, ledger.Unsettled, x.Settle(ledger.Name{ID: d.ID}, &s))
		x.NotSettled(&s)
		var d2 ledger.Delivery
		require.True(t, x.Next(&d2, false))
		require.True(t, d2.Doubtful)
		_, _, kept := x.Nack(d2, time.Second, d2.Message, ledger.Failed)
		require.False(t, kept)
		x.verdict(ledger.Drop, 1) // out of the buffer
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.False(t, x.Next(&d2, false))
	})
}

// A partition goes to another consumer before what was received first by the new connection was taken.
func TestThePartitionComesBackAfterAConnectionWasLost(t *testing.T) {
	run(t, nil, func(x *x) {
		x.arrive(1)
		x.Disconnected()
		i := id(2)
		x.Received("t", i)
		x.Activate("t", false)
		_, v := x.deliver(message{id: i})
		require.Equal(t, ledger.Drop, v)
		x.Activate("t", true)
		d, v := x.comes(3)
		require.Equal(t, ledger.Deliver, v)
		require.False(t, d.Doubtful, "its connection was not lost since")
	})
}

// Of a batch on Shared one message times out, and the other is with the application.
func TestAnAckTimeoutWhileASiblingIsAtWork(t *testing.T) {
	run(t, func(o *ledger.Options) { o.RedeliversAll, o.Others = false, true }, func(x *x) {
		var ds []ledger.Delivery
		for i := range int32(2) {
			d, _ := x.deliver(message{id: halfOf(i), payload: make([]byte, 10)})
			ds = append(ds, d)
		}
		x.StartTimeout(ds[0], 10*time.Second)
		x.StartTimeout(ds[1], 60*time.Second)
		time.Sleep(20 * time.Second)
		require.Empty(t, x.requests(), "the broker would send the whole batch")
	})
}

// A dead letter is being published; an ack of the same message is refused: it is not published a second time.
func TestAMessageIsPublishedOnceAtATime(t *testing.T) {
	run(t, nil, func(x *x) {
		d, _ := x.arrive(1)
		n := ledger.Name{ID: d.ID}
		first := ledger.Settling{Leaves: true}
		require.Equal(t, ledger.Unsettled, x.Settle(n, &first)) // publishing takes a while
		var ack ledger.Settling
		require.Equal(t, ledger.Busy, x.Settle(n, &ack))
		x.NotSettled(&ack) // refused
		second := ledger.Settling{Leaves: true}
		require.Equal(t, ledger.Busy, x.Settle(n, &second))
	})
	// Nor is it handed out meanwhile.
	run(t, nil, func(x *x) {
		d, _ := x.arrive(1)
		n := ledger.Name{ID: d.ID}
		first := ledger.Settling{Leaves: true}
		require.Equal(t, ledger.Unsettled, x.Settle(n, &first))
		x.Nack(d, time.Second, d.Message, ledger.Failed)
		var ack ledger.Settling
		require.Equal(t, ledger.Busy, x.Settle(n, &ack))
		x.NotSettled(&ack)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.False(t, x.Next(&ledger.Delivery{}, false))
	})
}

// The last delivery times out while its ack is under way, which fails: nobody is in Receive.
func TestTheLastTimeoutDuringAnAckThatFails(t *testing.T) {
	gaveUp := 0
	run(t, func(o *ledger.Options) { o.MaxDeliveries = 1; o.Calls.GiveUp = func(ledger.Delivery) { gaveUp++ } }, func(x *x) {
		d, _ := x.arrive(1)
		x.StartTimeout(d, time.Second)
		var s ledger.Settling
		x.Settle(ledger.Name{ID: d.ID}, &s)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		x.NotSettled(&s)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 1, gaveUp)
	})
}

// A sibling that waits to be published as a dead letter stays when its batch might be given back.
func TestASiblingThatIsToBePublished(t *testing.T) {
	run(t, func(o *ledger.Options) { o.RedeliversAll, o.Others = false, true; o.MaxDeliveries = 2 }, func(x *x) {
		var ds []ledger.Delivery
		for i := range int32(2) {
			d, _ := x.deliver(message{id: halfOf(i), payload: make([]byte, 10)})
			ds = append(ds, d)
		}
		_, _, kept := x.Nack(ds[1], time.Minute, ds[1].Message, ledger.Leaving) // is in line behind 500 others
		require.True(t, kept)
		x.Nack(ds[0], time.Second, ds[0].Message, ledger.Failed) // its next one is the last: given back
		time.Sleep(2 * time.Second)
		synctest.Wait()
		var s ledger.Settling
		require.True(t, x.SettleWaiting(ds[1], &s))
	})
}

// Of a batch on Shared one message came by a connection that was lost, so that it is not kept, and the other is. When the first one is asked
// for the broker sends the whole batch, to whichever consumer: the other one must not be handed out from here as well.
func TestABatchOfWhichOneMessageIsAskedFor(t *testing.T) {
	run(t, func(o *ledger.Options) { o.RedeliversAll, o.Others = false, true }, func(x *x) {
		x.Disconnected()
		second := halfOf(1)
		first, v := x.deliver(message{id: halfOf(0), payload: make([]byte, 10)})
		require.Equal(t, ledger.Deliver, v)
		require.True(t, first.Doubtful)
		x.Received("t", second)
		later, v := x.deliver(message{id: second, payload: make([]byte, 10)})
		require.Equal(t, ledger.Deliver, v)
		require.False(t, later.Doubtful)
		_, _, kept := x.Nack(first, 10*time.Second, first.Message, ledger.Failed)
		require.False(t, kept)
		_, _, kept = x.Nack(later, 11*time.Second, later.Message, ledger.Failed)
		require.True(t, kept)
		for range 15 {
			time.Sleep(time.Second)
			x.Idle()
		}
		require.NotEmpty(t, x.requests())
		require.False(t, x.Next(&ledger.Delivery{}, false))
		for i := range int32(2) { // the answer comes here
			_, v := x.deliver(message{id: halfOf(i), payload: make([]byte, 10)})
			require.Equal(t, ledger.Deliver, v)
		}
	})
}

// The last delivery is nacked with a delay of nothing, and is ready before its dead letter is begun; nobody is in Receive.
func TestALastNackWithoutADelay(t *testing.T) {
	run(t, func(o *ledger.Options) { o.MaxDeliveries = 1 }, func(x *x) {
		d, _ := x.arrive(1)
		_, _, kept := x.Nack(d, 0, d.Message, ledger.Leaving)
		require.True(t, kept)
		time.Sleep(time.Second)
		synctest.Wait()
		var s ledger.Settling
		require.True(t, x.SettleWaiting(d, &s))
		require.False(t, x.Next(&ledger.Delivery{}, false), "it is being published")
		x.NotSettled(&s)
		require.True(t, x.Next(&ledger.Delivery{}, false), "that failed")
	})
}

// An offer of a new message ended, as a pause ends it, and then a connection is lost: the message keeps its turn, or its successor would be
// handed out first, and the cumulative acknowledgement of that would cover it.
func TestANewMessageKeepsItsTurnWhenAConnectionIsLost(t *testing.T) {
	run(t, nil, func(x *x) {
		first, v := x.arrive(1)
		require.Equal(t, ledger.Deliver, v)
		_, ok := x.Offer(first)
		require.True(t, ok)
		x.Offered(first, false)
		x.Disconnected()
		var d ledger.Delivery
		require.True(t, x.Next(&d, true))
		require.Equal(t, first.ID, d.ID)
		require.NotNil(t, d.Message)
		require.True(t, d.Doubtful)
		_, ok = x.Offer(d)
		require.True(t, ok)
		x.Offered(d, true)
		x.ack(1)
	})
}

// Likewise if somebody wants to know who has the message: it is next before the feeder goes on.
func TestANewMessageKeepsItsTurnWhenItIsWithdrawn(t *testing.T) {
	run(t, nil, func(x *x) {
		d, _ := x.arrive(1)
		for range 1000 {
			withdrawn, ok := x.Offer(d)
			require.True(t, ok)
			go x.Find(ledger.Name{ID: d.ID})
			<-withdrawn
			x.Offered(d, false)
			require.True(t, x.Next(&d, true))
		}
	})
}

// Where a partition is another consumer's by now, what was not taken is so as well.
func TestANewMessageLosesItsTurnWithItsPartition(t *testing.T) {
	run(t, nil, func(x *x) {
		first, _ := x.arrive(1)
		_, ok := x.Offer(first)
		require.True(t, ok)
		x.Offered(first, false)
		x.Activate("t", false)
		var d ledger.Delivery
		require.False(t, x.Next(&d, false))
	})
}

// A message that the log of attempts knows is not offered any more since a connection was lost. What comes of it out of the buffer then is to
// wait longer, as another consumer failed on it: it is not kept, and is asked for when that is over.
func TestAnotherConsumerFailedOnWhatWasToBeOffered(t *testing.T) {
	run(t, shared, func(x *x) {
		arrive := func(retry ledger.Retry) (d ledger.Delivery, v ledger.Verdict) {
			v = x.Arrive(pulsar.ConsumerMessage{Consumer: x.child, Message: message{id: id(1)}}, retry, &d)
			return d, v
		}
		d, _ := arrive(ledger.Retry{Attempts: 2})
		x.Disconnected()
		_, ok := x.Offer(d)
		require.False(t, ok)
		require.Zero(t, x.Stats().BufferedBytes)
		_, v := arrive(ledger.Retry{Attempts: 4, Wait: time.Second})
		require.Equal(t, ledger.Drop, v)
		time.Sleep(time.Minute)
		require.False(t, x.Next(&d, false))
		require.NotEmpty(t, x.requests())
	})
}

// A cumulative acknowledgement waits until it is known who has what is on offer, and a seek forgets everything meanwhile.
func TestSeekWhileACumulativeAcknowledgementWaits(t *testing.T) {
	run(t, nil, func(x *x) {
		for range 100 {
			x.arrive(1)
			d, v := x.arrive(2)
			require.Equal(t, ledger.Deliver, v)
			withdrawn, ok := x.Offer(d)
			require.True(t, ok)
			var all sync.WaitGroup
			all.Go(x.Clear)
			synctest.Wait()
			all.Go(func() { x.SettleTo(ledger.Name{ID: d.ID}, d.ID) })
			<-withdrawn
			synctest.Wait()
			x.Offered(d, false)
			all.Wait()
			x.Clear()
		}
	})
}

type inShadow struct{ message }

func (inShadow) Topic() string { return "shadow of t" }

// A shadow topic has the ids of its source: the ack timeout of one's message is not that of the other's, which was settled a moment ago and had
// its place. An interceptor may take its time before the timeout starts.
func TestAckTimeoutsOfATopicAndItsShadow(t *testing.T) {
	for _, pause := range []time.Duration{0, 200 * time.Millisecond} {
		run(t, nil, func(x *x) {
			d, _ := x.arrive(1)
			x.StartTimeout(d, time.Second)
			time.Sleep(50 * time.Millisecond)
			x.settle(d.ID)
			require.Equal(t, ledger.Deliver, x.Arrive(pulsar.ConsumerMessage{Consumer: x.child, Message: inShadow{message{id: id(1)}}}, ledger.Retry{}, &d))
			time.Sleep(pause)
			x.StartTimeout(d, time.Second)
			require.Equal(t, time.Second, time.Until(x.AckDeadline(d)))
		})
	}
}

// A message is on offer by Chan, in the place of one of its source that was settled a moment ago: the ack timeout of that is not its own, and
// does not count as a delivery that the application never had.
func TestAckTimeoutOfASourceWhileItsShadowIsOffered(t *testing.T) {
	run(t, nil, func(x *x) {
		d, _ := x.arrive(1)
		x.StartTimeout(d, time.Second)
		x.settle(d.ID)
		require.Equal(t, ledger.Deliver, x.Arrive(pulsar.ConsumerMessage{Consumer: x.child, Message: inShadow{message{id: id(1)}}}, ledger.Retry{}, &d))
		_, ok := x.Offer(d)
		require.True(t, ok)
		time.Sleep(time.Minute)
		x.Offered(d, true)
		require.False(t, x.Next(&d, false))
		_, current, _ := x.Find(ledger.Name{ID: d.ID, Topic: "shadow of t"})
		require.True(t, current)
	})
}
