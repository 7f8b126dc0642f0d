package ledger_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// Observers are told since when the application has a message, how often it had it, and when and why it was to come again.
func TestWhatObserversAreTold(t *testing.T) {
	var timedOut []ledger.Settling
	observed := func(o *ledger.Options) {
		o.Observed, o.Timed = true, true
		o.Calls.TimedOut = func(s ledger.Settling) { timedOut = append(timedOut, s) }
	}
	run(t, observed, func(x *x) {
		next := func() (d ledger.Delivery) {
			synctest.Wait()
			require.True(x, x.Next(&d, false))
			return d
		}
		time.Sleep(time.Second)
		d, _ := x.arrive(1)
		time.Sleep(2 * time.Second)
		s, _, _ := x.Nack(d, 10*time.Second, d.Message, ledger.Failed)
		require.Equal(x, []any{time.Second, uint32(0), uint32(1)}, []any{s.Since, s.Count, s.Attempts})
		nacked := time.Now()

		time.Sleep(15 * time.Second) // nobody receives
		d = next()
		require.Equal(x, 15*time.Second, time.Since(nacked))
		due, cause := x.Taken(d)
		require.Equal(x, []any{10 * time.Second, ledger.Nacked}, []any{due.Sub(nacked), cause})
		x.StartTimeout(d, 20*time.Second)
		time.Sleep(25 * time.Second)
		synctest.Wait()
		require.Len(x, timedOut, 1)
		s = timedOut[0]
		require.Equal(x, []any{18 * time.Second, uint32(1), uint32(2)}, []any{s.Since, s.Count, s.Attempts})

		d = next()
		due, cause = x.Taken(d)
		require.Equal(x, []any{35 * time.Second, ledger.TimedOut}, []any{due.Sub(nacked), cause})
		x.Nack(d, time.Minute, d.Message, ledger.Snoozed)
		s = ledger.Settling{}
		require.Equal(x, ledger.Unsettled, x.Settle(ledger.Name{ID: d.ID}, &s))
		require.Equal(x, []uint32{2, 2}, []uint32{s.Count, s.Attempts}, "it does not have the message")
		require.Nil(x, x.Settled(&s))
	})
}

// What was never waited for has no time when it was to come.
func TestTakenWithoutACause(t *testing.T) {
	run(t, func(o *ledger.Options) { o.Observed = true }, func(x *x) {
		d, _ := x.arrive(1)
		due, cause := x.Taken(d)
		require.Equal(x, ledger.NoCause, cause)
		require.Zero(x, due)
	})
}

// Whoever waits for a message is told when one is due.
func TestWhoeverWaitsIsWoken(t *testing.T) {
	var woken atomic.Int32
	run(t, func(o *ledger.Options) { o.Calls.Wake = func() { woken.Add(1) } }, func(x *x) {
		d, _ := x.arrive(1)
		x.Nack(d, time.Second, d.Message, ledger.Failed)
		synctest.Wait()
		require.Zero(x, woken.Load())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.EqualValues(x, 1, woken.Load())
	})
}

// What is settled of a batch that is not settled whole, and what of it is about to arrive.
func TestStatsOfABatch(t *testing.T) {
	for name, indexAcks := range map[string]bool{"index acks": true, "no index acks": false} {
		t.Run(name, func(t *testing.T) {
			run(t, func(o *ledger.Options) { o.IndexAcks = keptIf(indexAcks) }, func(x *x) {
				stats := func(unfinished, arriving int) {
					x.Helper()
					if indexAcks {
						unfinished, arriving = 0, 0
					}
					s := x.Stats()
					require.Equal(x, []int{unfinished, arriving}, []int{s.Unfinished, s.Arriving})
				}
				x.deliver(message{id: ofThree(1, 0)})
				stats(0, 0)
				x.settle(ofThree(1, 0))
				stats(1, 2)
				x.deliver(message{id: ofThree(1, 1)})
				stats(1, 1)
				x.verdict(ledger.Deliver, 2) // what is missing was acknowledged by another
				stats(1, 0)
				x.settle(ofThree(1, 1))
				stats(2, 0)
			})
		})
	}
}
