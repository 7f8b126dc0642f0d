package worker

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/pulsar-redelivery/redelivery/acktimeout"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/nack"
)

// key is what a consumer tracks: ledger, entry and the place in a batch.
type key struct {
	ledger, entry int64
	index         int32
}

func keyOf(i int) key { return key{int64(i / 50_000), int64(i % 50_000), 0} }

// tracker is what both trackers can do.
type tracker interface {
	Track(key, uint32)
	TrackFor(key, time.Duration)
	Untrack(key) bool
	Close()
}

func (w *worker) newTracker(due func([]key)) tracker {
	policy := backoff.Exponential{Min: time.Hour, Max: 24 * time.Hour} // seven delays, none of which ends here
	if w.Tracker == "acktimeout" {
		return acktimeout.New(time.Minute, policy, due)
	}
	return nack.New(policy, due)
}

// trackers measures a tracker by itself, with that many keys in it.
func (w *worker) trackers() (Report, error) {
	figures := map[string]float64{}
	w.trackerCosts(figures)
	w.trackerHandOver(figures)
	return Report{Figures: figures}, nil
}

func (w *worker) trackerCosts(figures map[string]float64) {
	before := heap()
	t := w.newTracker(func([]key) {})
	defer t.Close()
	n := w.Messages
	perKey := func(do func(i int)) float64 {
		begin := time.Now()
		for i := range n {
			do(i)
		}
		return float64(time.Since(begin).Nanoseconds()) / float64(n)
	}
	figures["fillNs"] = perKey(func(i int) { t.Track(keyOf(i), uint32(i%7)) })
	figures["bytes"] = (heap() - before) / float64(n)
	figures["idlePercent"] = w.idleCPU()

	var from, to runtime.MemStats
	runtime.ReadMemStats(&from)
	figures["pairNs"] = perKey(func(i int) {
		t.Track(keyOf(n+i), uint32(i%7))
		t.Untrack(keyOf(i))
	})
	runtime.ReadMemStats(&to)
	figures["allocs"] = float64(to.Mallocs-from.Mallocs) / float64(n)
	figures["untrackNs"] = perKey(func(i int) { t.Untrack(keyOf(n + i)) })
}

// trackerHandOver lets all keys fall due at one moment, and settles others meanwhile.
func (w *worker) trackerHandOver(figures map[string]float64) {
	var handed atomic.Int64
	done := make(chan time.Time, 1)
	t := w.newTracker(func(keys []key) {
		if handed.Add(int64(len(keys))) == int64(w.Messages) {
			done <- time.Now()
		}
	})
	defer t.Close()
	const others = 1_000_000
	due := time.Now().Add(time.Duration(w.Messages)*2*time.Microsecond + 2*time.Second)
	for i := range w.Messages {
		t.TrackFor(keyOf(i), time.Until(due))
	}
	time.Sleep(time.Until(due))
	longest := time.Duration(0)
	for i := w.Messages; ; i = w.Messages + (i+1)%others {
		select {
		case end := <-done:
			figures["handOverMs"] = milliseconds(end.Sub(due))
			figures["blockedMs"] = milliseconds(longest)
			return
		default:
		}
		t.TrackFor(keyOf(i), time.Hour)
		begin := time.Now()
		t.Untrack(keyOf(i))
		longest = max(longest, time.Since(begin))
	}
}
