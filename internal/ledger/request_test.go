package ledger_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

func atBroker(o *ledger.Options) { o.Keeps = false }

// The broker begins again with the oldest that is not acknowledged. If that was not delivered before, the deliveries do not show that the
// request is answered, and what comes with them is not covered by it.
func TestAnAnswerThatGoesOnWhereTheLastDeliveryWas(t *testing.T) {
	run(t, atBroker, func(x *x) {
		d, _ := x.arrive(1)
		x.Nack(d, 0, nil, ledger.Failed)
		require.Len(t, x.requests(), 1)
		x.ack(1) // before the broker has the request
		d, _ = x.arrive(2)
		x.Nack(d, time.Second, nil, ledger.Failed)
		time.Sleep(time.Second)
		require.Len(t, x.requests(), 2)
	})
}

// What was there when something was asked for comes with it.
func TestARequestBringsAllThatIsDue(t *testing.T) {
	run(t, atBroker, func(x *x) {
		first, _ := x.arrive(1)
		second, _ := x.arrive(2)
		x.Nack(first, 0, nil, ledger.Failed)
		x.Nack(second, time.Second, nil, ledger.Failed)
		time.Sleep(5 * time.Second)
		require.Len(t, x.requests(), 1)
	})
}

// Where nothing comes though somebody waits, a request was not answered: it is made again soon, and not only when the time is over that
// a slow application is given. What does not come then either is another consumer's, after no less time than before.
func TestARequestIsMadeAgainWhereNothingComes(t *testing.T) {
	run(t, atBroker, func(x *x) {
		d, _ := x.arrive(1)
		x.Nack(d, 0, nil, ledger.Failed)
		require.Len(t, x.requests(), 1)
		for range 120 {
			time.Sleep(time.Second)
			x.Idle()
		}
		requests := len(x.requests())
		require.GreaterOrEqual(t, requests, 10)
		require.LessOrEqual(t, requests, 25)
		d, v := x.arrive(1)
		require.Equal(t, ledger.Deliver, v)
		require.EqualValues(t, 1, d.Count, "it was forgotten")
		x.Nack(d, 0, nil, ledger.Failed)
		for range 300 {
			time.Sleep(time.Second)
			x.Idle()
		}
		require.Zero(t, x.Stats().Waiting)
	})
}

// A slow application has others to work at meanwhile, and is not sent all of them again.
func TestARequestIsNotMadeAgainSoonWhereOthersCome(t *testing.T) {
	run(t, atBroker, func(x *x) {
		d, _ := x.arrive(1)
		x.Nack(d, 0, nil, ledger.Failed)
		for e := range int64(14) {
			time.Sleep(2 * time.Second)
			x.arrive(2 + e)
		}
		require.Len(t, x.requests(), 1)
	})
}

// Where a request may be answered twice, as the connection was lost just after it, the second answer is not waited for once the queue was
// empty. Where a little comes all the time nothing else would end that for hours.
func TestAnAnswerThatMayComeTwiceIsNotWaitedForForever(t *testing.T) {
	shared := func(o *ledger.Options) { o.Keeps, o.RedeliversAll, o.Queue = false, false, 1000 }
	run(t, shared, func(x *x) {
		d, _ := x.arrive(1)
		x.Nack(d, 0, nil, ledger.Failed)
		require.Len(t, x.requests(), 1)
		x.Disconnected() // the request may go out by this connection and by the next
		d, v := x.comes(1)
		require.Equal(t, ledger.Deliver, v)
		x.Nack(d, 0, nil, ledger.Failed)
		for e := range int64(60) {
			time.Sleep(500 * time.Millisecond)
			x.arrive(2 + e)
			x.Empty()
		}
		require.GreaterOrEqual(t, len(x.requests()), 2)
	})
}

// What was prefetched before the connection was lost may be another consumer's, so it does not wait here though it is the last delivery.
func TestTheLastDeliveryInDoubtIsNotKept(t *testing.T) {
	for name, late := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			run(t, func(o *ledger.Options) { o.MaxDeliveries, o.RedeliversAll = 1, false }, func(x *x) {
				x.arrive(1)
				if late {
					x.Disconnected()
				}
				d, v := x.arrive(2)
				require.Equal(t, ledger.Deliver, v)
				if !late {
					x.Disconnected()
				}
				x.StartTimeout(d, time.Hour)
				_, _, kept := x.Nack(d, 10*time.Second, d.Message, ledger.Leaving)
				require.False(t, kept, "another consumer may have it")
				time.Sleep(20 * time.Second)
				require.False(t, x.Next(&d, false))
				require.Len(t, x.requests(), 1)
			})
		})
	}
}

// A message is asked for while its topic is away. What comes first then may be the answer, but of a consumer's only topic everything comes
// again as well: nothing of that is asked for meanwhile, or another consumer could get it too.
func TestTheOnlyTopicSendsAgainThoughItWasAsked(t *testing.T) {
	one := func(o *ledger.Options) { o.RedeliversAll, o.Keeps, o.OneTopic = false, false, true }
	run(t, one, func(x *x) {
		first, _ := x.arrive(1)
		second, _ := x.arrive(2)
		x.Disconnected()
		x.Nack(first, 6*time.Second, nil, ledger.Failed)
		time.Sleep(7 * time.Second)
		require.Len(t, x.requests(), 1)
		_, v := x.comes(1)
		require.Equal(t, ledger.Deliver, v)
		x.Nack(second, 0, nil, ledger.Failed)
		time.Sleep(time.Minute)
		require.Len(t, x.requests(), 1)
		x.verdict(ledger.Deliver, 2)
	})
}

// After a lost connection everything comes again. What is asked for meanwhile comes beside that, so that it does not count towards it: a
// message whose copy a slow application has not taken yet would be taken for another consumer's, and begin again with a count of 0.
func TestAnswersAreNotWhatTheBrokerSendsAgain(t *testing.T) {
	shared := func(o *ledger.Options) { o.RedeliversAll, o.Keeps, o.OneTopic = false, false, true }
	run(t, shared, func(x *x) {
		for e := range int64(4) {
			d, _ := x.arrive(1 + e)
			x.Nack(d, 0, nil, ledger.Failed)
		}
		x.Disconnected()
		time.Sleep(20 * time.Second)
		x.Idle()
		d, v := x.comes(1)
		for range 8 {
			require.Equal(t, ledger.Deliver, v)
			x.Nack(d, 0, nil, ledger.Failed)
			time.Sleep(time.Second)
			d, v = x.arrive(1)
		}
		time.Sleep(10 * time.Second)
		d, v = x.arrive(4)
		require.Equal(t, ledger.Deliver, v)
		require.EqualValues(t, 1, d.Count)
	})
}

// A broker that keeps no batch-index acknowledgements sends batches again as a whole, though the consumer has them turned on: the copies of settled
// messages are not taken for those that are waited for.
func TestTheBrokerKeepsNoBatchIndexAcks(t *testing.T) {
	options := func(o *ledger.Options) {
		o.RedeliversAll, o.Keeps, o.OneTopic, o.IndexAcks = false, false, true, ledger.KeptIndexAcks
	}
	run(t, options, func(x *x) {
		for i := range int32(3) {
			x.deliver(message{id: ofThree(1, i)})
		}
		x.settle(ofThree(1, 1))
		x.settle(ofThree(1, 2))
		d, _ := x.arrive(2)
		x.Nack(d, 0, nil, ledger.Failed)
		time.Sleep(8 * time.Second)
		x.Empty()
		require.Len(t, x.requests(), 1)
		x.Disconnected()
		again := message{id: ofThree(1, 0)}
		x.Received("t", again.id)
		x.deliver(again)
		for i := range int32(2) {
			time.Sleep(10 * time.Second)
			x.deliver(message{id: ofThree(1, 1+i)})
		}
		time.Sleep(time.Minute) // the application is slow
		d, v := x.arrive(2)
		require.Equal(t, ledger.Deliver, v)
		require.EqualValues(t, 1, d.Count)
	})
}

// Deliveries that begin again with what came before are the answer to what was asked for. What is still to come of them is not asked for, and what
// they have passed is, at once.
func TestDeliveriesThatBeginAgain(t *testing.T) {
	for name, c := range map[string]struct {
		asks  bool  // for the first one; else the broker begins again of itself
		comes int64 // so many
		more  int   // requests, after the third one is nacked
	}{
		"asked for, and it is past":    {true, 4, 1},
		"asked for, and it is to come": {true, 2, 0},
		"of itself, and it is past":    {false, 4, 1},
		"of itself, and it is to come": {false, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, atBroker, func(x *x) {
				var had []ledger.Delivery
				for e := range int64(4) {
					d, _ := x.arrive(1 + e)
					had = append(had, d)
				}
				want := c.more
				if c.asks {
					x.Nack(had[0], 0, nil, ledger.Failed)
					require.Len(x, x.requests(), 1)
					want++
				}
				for e := range c.comes {
					x.arrive(1 + e)
				}
				x.Nack(had[2], 0, nil, ledger.Failed)
				require.Len(x, x.requests(), want)
			})
		})
	}
}

// A copy that comes before its message is due is kept, and handed out from here then, also where others wait at the broker.
func TestACopyOfWhatWaits(t *testing.T) {
	run(t, atBroker, func(x *x) {
		d, _ := x.arrive(1)
		x.Nack(d, 10*time.Second, nil, ledger.Failed)
		require.Zero(x, x.Stats().BufferedBytes)
		early := id(1)
		_, v := x.deliver(message{id: early})
		require.Equal(x, ledger.Keep, v)
		require.Positive(x, x.Stats().BufferedBytes)
		time.Sleep(11 * time.Second)
		require.Empty(x, x.requests())
		require.True(x, x.Next(&d, false))
		require.Same(x, early, d.ID)
	})
}

// Of several topics one was connected again, and what comes of another is the answer to a request, so that it seems to be sent again. What it had
// before is asked for in time, though its messages fail all the time and nobody ever waits for one.
func TestRequestsOfATopicThatIsNotSentAgain(t *testing.T) {
	run(t, func(o *ledger.Options) { atBroker(o); o.RedeliversAll = false }, func(x *x) {
		asked, _ := x.arrive(1)
		x.Nack(asked, 0, nil, ledger.Failed)
		had, _ := x.arrive(2)
		x.Disconnected()
		x.comes(1)
		x.Nack(had, time.Second, nil, ledger.Failed)
		began := time.Now()
		for entry := int64(3); !slices.Contains(x.requests(), had.ID); entry++ {
			time.Sleep(100 * time.Millisecond)
			d, _ := x.arrive(entry)
			x.Nack(d, 0, nil, ledger.Failed)
			require.Less(x, time.Since(began), 20*time.Second)
		}
	})
}
