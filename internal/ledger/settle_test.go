package ledger_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// Two settle a message at a time. That one came too late does not hold up the message that has its place then.
func TestTheMessageAfterOneThatTwoSettle(t *testing.T) {
	run(t, nil, func(x *x) {
		d, _ := x.arrive(1)
		var first, second ledger.Settling
		require.Equal(x, ledger.Unsettled, x.Settle(ledger.Name{ID: d.ID}, &first))
		require.Equal(x, ledger.Busy, x.Settle(ledger.Name{ID: d.ID}, &second))
		x.Settled(&first)
		x.Settled(&second)
		require.True(x, second.Late)
		next, _ := x.arrive(2)
		require.Equal(x, d.Ref, next.Ref)
		var refused ledger.Settling
		require.Equal(x, ledger.Unsettled, x.Settle(ledger.Name{ID: next.ID}, &refused))
		x.NotSettled(&refused)
		x.Nack(next, time.Second, next.Message, ledger.Failed)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.True(x, x.Next(&next, false))
	})
}

// A last delivery is given up once, though its ack fails after its time was over. The application has it until it is published.
func TestAnAckThatFailsAfterTheLastTimeout(t *testing.T) {
	gaveUp := 0
	run(t, func(o *ledger.Options) { o.MaxDeliveries = 1; o.Calls.GiveUp = func(ledger.Delivery) { gaveUp++ } }, func(x *x) {
		d, _ := x.arrive(1)
		x.StartTimeout(d, time.Second)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(x, 1, gaveUp)
		require.True(x, x.Touch(ledger.Name{ID: d.ID}))
		var s ledger.Settling
		require.Equal(x, ledger.Unsettled, x.Settle(ledger.Name{ID: d.ID}, &s))
		x.NotSettled(&s)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(x, 1, gaveUp)
	})
}

// A message that the application kept from an earlier hand-over is not the one that it has.
func TestAnEarlierHandOver(t *testing.T) {
	run(t, nil, func(x *x) {
		d, _ := x.arrive(1)
		x.Nack(d, 0, d.Message, ledger.Failed)
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(x, x.Next(&d, false))
		require.Equal(x, []any{uint8(1), uint32(1)}, []any{d.Hand, d.Count})
		for _, c := range []struct {
			name    ledger.Name
			current bool
		}{
			{ledger.Name{ID: d.ID}, true}, // an id alone is the message's that it has
			{ledger.Name{ID: d.ID, HasHand: true, Hand: 1}, true},
			{ledger.Name{ID: d.ID, HasHand: true, Hand: 0}, false},
			{ledger.Name{ID: d.ID, HasHand: true, Hand: 1, Own: true, Count: 1}, true},
			{ledger.Name{ID: d.ID, HasHand: true, Hand: 1, Own: true, Count: 257}, false}, // hand-overs wrap
		} {
			_, current, known := x.Find(c.name)
			require.Equal(x, []bool{c.current, true}, []bool{current, known}, "%+v", c.name)
			require.Equal(x, c.current, x.Touch(c.name), "%+v", c.name)
		}
	})
}

// What is before a batch is acknowledged cumulatively first only after an acknowledgement of the batch was refused, and not by index.
func TestWhatIsAcknowledgedBeforeABatch(t *testing.T) {
	for name, c := range map[string]struct {
		id        pulsar.MessageID
		refused   bool
		indexAcks bool
		before    any
	}{
		"a batch":                    {ofThree(5, 1), false, false, nil},
		"a batch, refused":           {ofThree(5, 1), true, false, pulsar.NewMessageID(1, 4, -1, 0)},
		"a batch, refused, by index": {ofThree(5, 1), true, true, nil},
		"no batch":                   {id(5), false, false, nil},
		"no batch, refused":          {id(5), true, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(o *ledger.Options) { o.IndexAcks = keptIf(c.indexAcks) }, func(x *x) {
				x.deliver(message{id: c.id})
				if c.refused {
					x.NotSettledTo(ledger.Name{ID: c.id})
				}
				_, before, id := x.Newest(ledger.Name{ID: c.id})
				require.Equal(x, []any{c.before, c.id}, []any{before, id})
			})
		})
	}
}

// Where nearly all messages fail this consumer may be what fails, and others are to try: what is due goes back to the broker. Where some do not
// fail it is handed out from here.
func TestWhereNearlyAllMessagesFail(t *testing.T) {
	for name, c := range map[string]struct {
		acks int64 // of so many one, or none
		asks bool
	}{"all fail": {0, true}, "one of twenty does not": {20, true}, "one of four does not": {4, false}} {
		t.Run(name, func(t *testing.T) {
			run(t, func(o *ledger.Options) { o.RedeliversAll, o.Others = false, true }, func(x *x) {
				for entry := range int64(40) {
					d, v := x.arrive(entry)
					require.Equal(x, ledger.Deliver, v)
					if c.acks > 0 && entry%c.acks == 0 {
						x.ack(entry)
					} else {
						x.Nack(d, 10*time.Second, d.Message, ledger.Failed)
					}
				}
				time.Sleep(11 * time.Second)
				require.Equal(x, c.asks, len(x.requests()) > 0)
				require.Equal(x, !c.asks, x.Next(&ledger.Delivery{}, false))
			})
		})
	}
}

// A cumulative acknowledgement into a batch, by index, that may have been lost is made again once the batch is settled, to its end.
func TestACumulativeAcknowledgementIntoABatch(t *testing.T) {
	run(t, func(o *ledger.Options) { o.IndexAcks, o.DropsCovered = ledger.KeptIndexAcks, true }, func(x *x) {
		again := func() (ids []pulsar.MessageID) {
			x.AckAgain(func(_ pulsar.Consumer, _ string, id pulsar.MessageID) { ids = append(ids, id) })
			return ids
		}
		for i := range int32(3) {
			x.deliver(message{id: ofThree(5, i)})
		}
		x.SettleTo(ledger.Name{ID: ofThree(5, 1)}, ofThree(5, 1))
		x.pass()
		require.Empty(x, again(), "that would acknowledge all of the batch")
		x.pass()
		require.Zero(x, x.covers.Load())
		x.settle(ofThree(5, 2))
		x.pass()
		require.EqualValues(x, 2, x.covers.Load(), "each round tells, until it is made")
		require.Len(x, again(), 1)
		x.verdict(ledger.Deliver, 9)
		x.ack(9)
		x.pass()
		require.EqualValues(x, 2, x.covers.Load())
		x.deliver(message{id: ofThree(10, 0)})
		x.SettleTo(ledger.Name{ID: ofThree(10, 0)}, ofThree(10, 0))
		x.Activate("t", false)
		require.Empty(x, again(), "another consumer may move the cursor")
	})
}

// One into a batch has upstream acknowledge to the entry before. If that is a batch too, of which a later one acknowledges a message, only what is
// after that is not refused when it is made again.
func TestACumulativeAcknowledgementBeforeTheLast(t *testing.T) {
	run(t, func(o *ledger.Options) { o.DropsCovered = true }, func(x *x) {
		for _, e := range []int64{5, 6} {
			for i := range int32(3) {
				x.deliver(message{id: ofThree(e, i)})
			}
		}
		for _, id := range []pulsar.MessageID{ofThree(6, 1), ofThree(5, 2), ofThree(5, 0)} {
			x.SettleTo(ledger.Name{ID: id}, id)
		}
		for n := range int32(2) {
			x.AckAgain(func(_ pulsar.Consumer, _ string, id pulsar.MessageID) {
				require.EqualValues(x, []any{int64(5), 3 + n}, []any{id.EntryID(), id.BatchIdx()})
			})
		}
	})
}
