package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// After a lost connection the broker sends again what it has no acknowledgement of, to whichever consumer it chooses. Until that has been taken
// it is not asked for: the copy may be in the queue of a slow application, and the broker would send another consumer a second one. What is
// received first tells whether the connection of this topic was lost, and not that of another.
func TestWhatTheNextConnectionBringsIsNotAskedFor(t *testing.T) {
	singles := func(o *ledger.Options) { o.RedeliversAll, o.Keeps = false, false }
	for name, c := range map[string]struct {
		received int64 // first, after the loss
		comes    bool  // the message, or another consumer has it
		asks     int   // before more is taken than that
	}{
		"it comes":                {1, true, 0},
		"another consumer has it": {0, false, 0},
		"of another topic":        {100, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, singles, func(x *x) {
				x.verdict(ledger.Deliver, 0)
				d, _ := x.arrive(1)
				x.Disconnected()
				x.Nack(d, time.Second, d.Message, ledger.Failed)
				time.Sleep(3 * time.Second)
				first := message{id: id(c.received)}
				x.Received("t", first.id)
				time.Sleep(time.Minute)
				require.Empty(t, x.requests())
				d, v := x.deliver(first)
				time.Sleep(time.Minute)
				require.Len(t, x.requests(), c.asks)
				if c.comes {
					require.Equal(t, ledger.Deliver, v)
					require.Equal(t, uint32(1), d.Count)
					return
				}
				x.others(2)
				require.Len(t, x.requests(), 1)
			})
		})
	}
}

// Nothing may be received of a topic whose connection was not lost.
func TestWhatIsDueIsAskedForWhereNothingIsReceived(t *testing.T) {
	run(t, func(o *ledger.Options) { o.RedeliversAll, o.Keeps = false, false }, func(x *x) {
		d, _ := x.arrive(1)
		x.Disconnected()
		x.Nack(d, time.Second, d.Message, ledger.Failed)
		time.Sleep(4 * time.Second)
		require.Empty(t, x.requests())
		time.Sleep(2 * time.Second)
		require.Len(t, x.requests(), 1)
	})
}

// Where somebody waits in vain nothing of it is on its way, whatever else is asked for.
func TestWhatIsDueIsAskedForWhereNothingComes(t *testing.T) {
	run(t, func(o *ledger.Options) { o.RedeliversAll, o.Keeps = false, false }, func(x *x) {
		doubtful, _ := x.arrive(1)
		for e := range int64(10) {
			x.verdict(ledger.Deliver, 2+e)
		}
		x.Disconnected()
		x.Received("t", id(1))
		x.Nack(doubtful, time.Second, nil, ledger.Failed)
		for e := range int64(5) {
			d, _ := x.arrive(20 + e)
			x.Nack(d, time.Duration(1+3*e)*time.Second, nil, ledger.Failed)
		}
		for range 5 {
			time.Sleep(time.Second)
			x.Idle()
		}
		require.Contains(t, x.requests(), id(1))
	})
}

// Upstream acknowledges one message after the other, each when the broker has answered, and a request waits behind these. That somebody waited in vain
// meanwhile does not tell that the request brought nothing.
func TestARequestWaitsBehindAcknowledgements(t *testing.T) {
	run(t, nil, func(x *x) {
		d, _ := x.arrive(1)
		for e := range int64(3) {
			x.verdict(ledger.Deliver, 2+e)
		}
		x.Disconnected()
		x.comes(5)
		x.others(6)
		x.Nack(d, time.Second, nil, ledger.Failed)
		var s ledger.Settling
		require.Equal(t, ledger.Unsettled, x.Settle(ledger.Name{ID: id(2)}, &s))
		time.Sleep(6 * time.Second)
		require.Len(t, x.requests(), 1)
		time.Sleep(7 * time.Second)
		x.Empty()
		x.Idle()
		time.Sleep(15 * time.Second)
		again, v := x.arrive(1)
		require.Equal(t, ledger.Deliver, v)
		require.EqualValues(t, 1, again.Count)
	})
}

// A Failover partition comes back while a message was asked for. Its copy is in the queue when the patience with the request ends, and the
// application is slow.
func TestWhatComesWithThePartitionIsNotForgotten(t *testing.T) {
	run(t, func(o *ledger.Options) { o.Keeps = false }, func(x *x) {
		d, _ := x.arrive(1)
		for e := range int64(5) { // which the application has
			x.verdict(ledger.Deliver, 2+e)
		}
		x.Nack(d, time.Second, nil, ledger.Failed)
		time.Sleep(2 * time.Second)
		require.Len(t, x.requests(), 1)
		x.Activate("t", false) // another consumer has it now
		time.Sleep(20 * time.Second)
		x.Idle()
		x.Activate("t", true) // and has left: the broker sends it again, into the queue
		again := message{id: id(1), payload: make([]byte, 100)}
		x.Received("t", again.id)
		time.Sleep(20 * time.Second)
		d, v := x.deliver(again)
		require.Equal(t, ledger.Deliver, v)
		require.EqualValues(t, 1, d.Count)
	})
}

// What was asked for while the connection was lost is answered beside what the broker sends again of itself, with all of it once more. The
// application is slow.
func TestWhatIsSentAgainTwiceIsNotForgotten(t *testing.T) {
	run(t, func(o *ledger.Options) { o.Keeps, o.OneTopic = false, true }, func(x *x) {
		for e := range int64(4) { // which the application has
			x.verdict(ledger.Deliver, 1+e)
		}
		d, _ := x.arrive(5)
		x.Ledger.Disconnected()
		x.Nack(d, time.Second, nil, ledger.Failed)
		time.Sleep(12 * time.Second)
		require.Len(t, x.requests(), 1)
		x.Idle()
		x.Connected()
		x.comes(1)
		for _, e := range []int64{2, 3, 4, 1, 2, 3, 4} {
			time.Sleep(5 * time.Second)
			x.arrive(e)
		}
		time.Sleep(5 * time.Second)
		d, v := x.arrive(5)
		require.Equal(t, ledger.Deliver, v)
		require.EqualValues(t, 1, d.Count)
	})
}

// After a Seek what is due is asked for, and what another consumer has is forgotten, though nothing was acknowledged since.
func TestNothingIsAcknowledgedAfterASeek(t *testing.T) {
	shared := func(o *ledger.Options) { o.Keeps, o.RedeliversAll = false, false }
	idle := func(x *x) {
		for range 600 {
			time.Sleep(time.Second)
			x.Idle()
		}
	}
	t.Run("another consumer has it", func(t *testing.T) {
		run(t, shared, func(x *x) {
			x.Clear()
			var had []ledger.Delivery
			for e := range int64(10) {
				d, v := x.arrive(1 + e)
				require.Equal(t, ledger.Deliver, v)
				had = append(had, d)
			}
			x.Disconnected()
			x.comes(1) // the others go to another consumer
			for _, d := range had {
				x.Nack(d, time.Second, nil, ledger.Failed)
			}
			idle(x)
			require.Zero(t, x.Len())
		})
	})
	t.Run("it is due", func(t *testing.T) {
		run(t, shared, func(x *x) {
			x.Clear()
			first, _ := x.arrive(1)
			second, _ := x.arrive(2)
			x.Nack(first, 0, nil, ledger.Failed)
			time.Sleep(time.Second)
			x.Disconnected() // of another topic
			x.comes(1)       // the application works on it for ten minutes
			x.Nack(second, time.Second, nil, ledger.Failed)
			idle(x)
			require.Greater(t, len(x.requests()), 1)
		})
	})
}

// A topic whose consumer was taken away while the application had its messages sends none of them again: the next one acknowledged them.
// After an hour all are forgotten, and not one after the other.
func TestWhatDoesNotComeForAnHourIsForgottenTogether(t *testing.T) {
	run(t, func(o *ledger.Options) { o.Keeps = false }, func(x *x) {
		for e := range int64(20) {
			d, _ := x.arrive(1 + e)
			x.Nack(d, time.Second, nil, ledger.Failed)
		}
		x.Disconnected()
		for range 90 {
			time.Sleep(time.Minute)
			x.Empty()
			x.Idle()
		}
		require.Zero(t, x.Stats().Waiting)
	})
}

// What was prefetched when the connection of the only topic was lost is not handed out: the broker sends it again, to whichever consumer it
// chooses. Where the connection may have been another topic's it is, since it may not come again.
func TestWhatWasPrefetchedWhenTheConnectionWasLost(t *testing.T) {
	for _, redeliversAll := range []bool{false, true} {
		for _, one := range []bool{false, true} {
			t.Run(fmt.Sprintf("redelivers all: %t, one topic: %t", redeliversAll, one), func(t *testing.T) {
				run(t, func(o *ledger.Options) { o.RedeliversAll, o.OneTopic = redeliversAll, one }, func(x *x) {
					had, _ := x.arrive(1)
					x.Disconnected()
					prefetched, again := message{id: id(2)}, message{id: id(2)}
					if d, v := x.deliver(prefetched); one {
						require.Equal(t, ledger.Drop, v)
					} else {
						require.Equal(t, ledger.Deliver, v)
						require.True(t, d.Doubtful)
						x.ack(2)
					}
					_, v := x.comes(1)
					require.Equal(t, ledger.Keep, v)
					require.Equal(t, uint32(0), had.Count)
					if d, v := x.deliver(again); one {
						require.Equal(t, ledger.Deliver, v)
						require.Equal(t, uint32(0), d.Count)
						require.False(t, d.Doubtful)
					} else {
						require.Equal(t, ledger.AckDuplicate, v)
					}
					time.Sleep(time.Minute)
					require.Empty(t, x.requests())
				})
			})
		}
	}
}

// A seek may return when messages of the connection that follows it were received: they are not of the one that it ended.
func TestWhatFollowsASeek(t *testing.T) {
	for _, received := range []bool{false, true} {
		t.Run(fmt.Sprintf("received: %t", received), func(t *testing.T) {
			run(t, func(o *ledger.Options) { o.OneTopic = true }, func(x *x) {
				x.verdict(ledger.Deliver, 1)
				x.Disconnected()
				first := message{id: id(0)}
				if received {
					x.Received("t", first.id)
				}
				x.Clear()
				if !received {
					x.Received("t", first.id)
				}
				d, v := x.deliver(first)
				require.Equal(t, ledger.Deliver, v)
				require.False(t, d.Doubtful)
				x.verdict(ledger.Deliver, 1)
				_, had := x.Reclaim(ledger.Name{ID: d.ID}, 0)
				require.True(t, had)
			})
		})
	}
}

// What was acknowledged just before a connection was lost is not sure as long as its copy may come, however long nothing is received: it is not
// handed out again.
func TestAnAcknowledgementThatWasLost(t *testing.T) {
	run(t, nil, func(x *x) {
		x.verdict(ledger.Deliver, 1)
		x.ack(1)
		x.Disconnected()
		time.Sleep(time.Minute)
		_, v := x.comes(1)
		require.Equal(x, ledger.AckDuplicate, v)
	})
}
