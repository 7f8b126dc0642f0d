package simulate

import (
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/backoff"
)

func TestNoMessageIsLostAndNoLimitExceeded(t *testing.T) {
	for n := range 100 {
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
		if r.IntN(3) == 0 {
			s.MaxTogether = 50 + r.IntN(500)
		}
		w := newWorld(s)
		require.NoError(t, w.run())
		held, unacked := 0, 0
		for _, i := range w.instances {
			held += i.queue.len() + i.ready.len() + i.aside.len() + s.Concurrency - i.idle
			unacked += i.unacked
			require.GreaterOrEqual(t, i.idle, 0, "%+v", s)
			require.GreaterOrEqual(t, i.unacked, 0, "%+v", s)
			require.LessOrEqual(t, i.idle, s.Concurrency, "%+v", s)
		}
		require.Equal(t, unacked, w.allUnacked, "%+v", s)
		requested := 0 // messages that the broker is about to send again
		for _, e := range w.events {
			if e.kind == sentAgain {
				requested++
			}
		}
		require.Equal(t, w.unsettled(), w.backlog()+w.replay.len()+held+w.waiting+requested, "%+v", s)
		require.GreaterOrEqual(t, w.waiting, 0)
	}
}

func TestSimulationWithTooManyEventsEndsWithAnError(t *testing.T) {
	for name, change := range map[string]func(*Setup){
		"calls": func(s *Setup) { s.Nack, s.MaxDeliveries, s.Handler = backoff.Fixed(0), 0, 1 },
		"messages that are sent again": func(s *Setup) {
			s.Outage, s.Rate, s.Queue, s.Window, s.Ratio, s.Pause = time.Hour, 200, 10_000, 20, 0.9, backoff.Fixed(time.Second)
		},
		"instances that are asked in vain": func(s *Setup) {
			s.Outage, s.Rate, s.Queue, s.Instances, s.Concurrency, s.Handler = 10*time.Hour, 10, 1, 1000, 1, time.Hour
		},
	} {
		s := small()
		s.MostEvents = 300_000
		change(&s)
		w := newWorld(s)
		require.ErrorContains(t, w.run(), "more than 300000 events in the first", name)
		require.Less(t, w.now, s.Before+s.Outage, name)
	}
}

func TestDelayLongerThanTheSimulationDoesNotOverflow(t *testing.T) {
	s := small()
	s.MostEvents, s.Nack = 100_000, backoff.Fixed(math.MaxInt64)
	r, err := Run(s)
	require.NoError(t, err)
	require.False(t, r.Recovered)
	require.Equal(t, 1000, r.Waiting)
	s.Window, s.Ratio, s.Pause = 20, 0.9, backoff.Fixed(math.MaxInt64)
	_, err = Run(s)
	require.NoError(t, err)
}

func TestMessagesThatNoHandlerHasHadTakeNoMemory(t *testing.T) {
	s := small()
	s.Rate, s.Outage, s.Before, s.Longest = 100_000, 20*time.Second, time.Second, time.Second
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	w := newWorld(s)
	require.NoError(t, w.run())
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Greater(t, w.backlog(), 2_000_000)
	require.Less(t, after.HeapAlloc, before.HeapAlloc+10<<20)
	runtime.KeepAlive(w)
}

func TestNoMessageFailsWithoutAnOutage(t *testing.T) {
	s := small()
	s.Outage = 0
	r, err := Run(s)
	require.NoError(t, err)
	require.Zero(t, r.Dead+r.Waiting+r.Calls)
	require.True(t, r.Recovered)
	require.Zero(t, r.After)
}

func TestConsumerWithTooManyUnackedMessagesIsBlocked(t *testing.T) {
	s := small()
	s.MaxDeliveries, s.Nack, s.MaxUnacked = 0, backoff.Fixed(10*time.Second), 100
	r, err := Run(s)
	require.NoError(t, err)
	require.LessOrEqual(t, r.Waiting, 300)
	require.Greater(t, r.Backlog, 500)
	require.True(t, r.Recovered)
}
