package worker

import (
	"runtime"
	"time"

	"github.com/pulsar-redelivery/redelivery/acktimeout"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/nack"
)

// key identifies a message as a consumer does: by ledger, entry and the index in a batch.
type key struct {
	ledger, entry int64
	index         int32
}

func keyOf(i int) key { return key{int64(i / 50_000), int64(i % 50_000), 0} }

// tracker has the methods of both trackers.
type tracker interface {
	Delay(uint32) time.Duration
	TrackFor(key, time.Time)
	Untrack(key) bool
	Due(time.Time) []key
}

func (w *worker) newTracker() tracker {
	policy := backoff.Exponential{Min: time.Hour, Max: 24 * time.Hour} // longer than the task
	if w.Tracker == "acktimeout" {
		return acktimeout.New[key](time.Minute, policy)
	}
	return nack.New[key](policy)
}

// trackers measures a tracker by itself, with as many keys as the task has messages.
func (w *worker) trackers() (Report, error) {
	figures := map[string]float64{}
	w.trackerCosts(figures)
	w.trackerHandOver(figures)
	return Report{Figures: figures}, nil
}

func (w *worker) trackerCosts(figures map[string]float64) {
	before := heap()
	t, start := w.newTracker(), time.Now()
	track := func(i int) { t.TrackFor(keyOf(i), start.Add(t.Delay(uint32(i%7)))) }
	n := w.Messages
	perKey := func(do func(i int)) float64 {
		begin := time.Now()
		for i := range n {
			do(i)
		}
		return float64(time.Since(begin).Nanoseconds()) / float64(n)
	}
	figures["fillNs"] = perKey(track)
	figures["bytes"] = (heap() - before) / float64(n)
	figures["idlePercent"] = w.idleCPU()

	var from, to runtime.MemStats
	runtime.ReadMemStats(&from)
	figures["pairNs"] = perKey(func(i int) {
		track(n + i)
		t.Untrack(keyOf(i))
	})
	runtime.ReadMemStats(&to)
	figures["allocs"] = float64(to.Mallocs-from.Mallocs) / float64(n)
	figures["untrackNs"] = perKey(func(i int) { t.Untrack(keyOf(n + i)) })
}

// trackerHandOver measures Due while all keys are due. During that call no other key can be tracked.
func (w *worker) trackerHandOver(figures map[string]float64) {
	t, due := w.newTracker(), time.Now()
	for i := range w.Messages {
		t.TrackFor(keyOf(i), due)
	}
	begin := time.Now()
	t.Due(due)
	figures["handOverMs"] = milliseconds(time.Since(begin))
	figures["blockedMs"] = figures["handOverMs"]
}
