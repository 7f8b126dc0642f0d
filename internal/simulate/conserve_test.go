package simulate

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/backoff"
)

// Whatever is set, a simulation ends, no message is lost or settled twice, and nobody has more than it may.
func TestNothingIsLost(t *testing.T) {
	for n := range 300 {
		r := rand.New(rand.NewPCG(uint64(n), 0))
		s := Setup{Rate: 1 + 200*r.Float64(), Instances: 1 + r.IntN(5), Concurrency: 1 + r.IntN(8),
			Handler: time.Duration(1+r.IntN(40)) * time.Millisecond, Queue: 1 + r.IntN(100), Before: time.Duration(1+r.IntN(5)) * time.Second,
			Outage: time.Duration(1+r.IntN(30)) * time.Second, Partial: r.Float64(), MaxDeliveries: uint32(r.IntN(6)), Tick: time.Second,
			Nack: backoff.Exponential{Min: time.Duration(1+r.IntN(1000)) * time.Millisecond, Max: 10 * time.Second}, Longest: time.Minute}
		if r.IntN(2) == 0 {
			s.Partial = 1
		}
		if r.IntN(2) == 0 {
			s.Window, s.Ratio, s.Pause = 1+r.IntN(30), 0.1+0.9*r.Float64(), backoff.Fixed(time.Duration(r.IntN(2000))*time.Millisecond)
		}
		if r.IntN(3) == 0 {
			s.RetryFrom = time.Duration(r.IntN(3000)) * time.Millisecond
		}
		if r.IntN(3) == 0 {
			s.MaxUnacked = 50 + r.IntN(500)
		}
		w := newWorld(s)
		w.run()
		held, unacked := 0, 0
		for _, i := range w.instances {
			held += i.queue.len() + i.ready.len() + i.aside.len() + s.Concurrency - i.idle
			unacked += i.unacked
			require.GreaterOrEqual(t, i.idle, 0, "%+v", s)
			require.GreaterOrEqual(t, i.unacked, 0, "%+v", s)
			require.LessOrEqual(t, i.idle, s.Concurrency, "%+v", s)
		}
		again := 0 // on their way back to the broker
		for _, e := range w.events {
			if e.kind == replayed {
				again++
			}
		}
		require.Equal(t, w.unsettled(), w.backlog.len()+w.replay.len()+held+w.waiting+again, "%+v", s)
		require.GreaterOrEqual(t, w.waiting, 0)
	}
}

// Without an outage nothing fails.
func TestNoOutage(t *testing.T) {
	s := small()
	s.Outage = 0
	r := Run(s)
	require.Zero(t, r.Dead+r.Waiting+r.Calls)
	require.True(t, r.Recovered)
	require.Zero(t, r.After)
}

// A consumer with too many unacknowledged messages is sent no more until half of them are gone.
func TestBlocked(t *testing.T) {
	s := small()
	s.MaxDeliveries, s.Nack, s.MaxUnacked = 0, backoff.Fixed(10*time.Second), 100
	r := Run(s)
	require.LessOrEqual(t, r.Waiting, 300)
	require.Greater(t, r.Backlog, 500)
	require.True(t, r.Recovered)
}
