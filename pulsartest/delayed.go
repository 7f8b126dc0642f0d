package pulsartest

import (
	"container/heap"
	"time"
)

// delayed are the entries of a subscription that are not due yet.
//
// Unless strictDelay is set, delays are as inexact as in the real broker. The broker looks for due entries only when it
// dispatches entries of the subscription, or when the timer fires. The timer fires at the first whole tick after the
// first entry is due. The broker may deliver an entry up to a tick early.
type delayed struct {
	heap  dueHeap
	timer *timer
	at    int64 // ms, the time for which the timer is set
	ran   int64 // ms, when the timer last ran
}

type due struct {
	at     int64 // ms
	offset int
}

type dueHeap []due

func (h dueHeap) Len() int { return len(h) }
func (h dueHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].offset < h[j].offset
}
func (h dueHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)   { *h = append(*h, x.(due)) }
func (h *dueHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

func (d *delayed) clear() {
	d.heap = nil
	d.timer.stop()
	d.timer, d.at = nil, 0
}

// cutoff returns the time, in ms, up to which entries count as due.
func (s *subscription) cutoff() int64 {
	if s.topic.server.strictDelay {
		return s.topic.server.millis()
	}
	return s.topic.server.millis() + s.topic.server.delayTick.Milliseconds()
}

// delay keeps e back if e is not due, and reports whether it has kept e back.
func (s *subscription) delay(offset int, e *entry) bool {
	if e.deliverAt <= 0 || e.deliverAt <= s.cutoff() {
		return false
	}
	heap.Push(&s.delayed.heap, due{e.deliverAt, offset})
	s.setTimer()
	return true
}

// takeDue moves due entries to the replays.
func (s *subscription) takeDue() {
	d := &s.delayed
	if len(d.heap) == 0 {
		return
	}
	cutoff := s.cutoff()
	var now []int
	for len(d.heap) > 0 && d.heap[0].at <= cutoff {
		if x := heap.Pop(&d.heap).(due); !s.cursor.acked(x.offset) {
			now = append(now, x.offset)
		}
	}
	s.replay.addAll(now)
	s.setTimer()
}

// setTimer sets the timer for the first entry.
func (s *subscription) setTimer() {
	d, server := &s.delayed, s.topic.server
	if len(d.heap) == 0 {
		d.clear()
		return
	}
	first := d.heap[0].at
	if first == d.at && d.timer != nil {
		return
	}
	d.timer.stop()
	d.timer, d.at = nil, first
	until := func(t time.Time) time.Duration { return t.Sub(server.now()) }
	wait := until(time.UnixMilli(first))
	if !server.strictDelay {
		wait = max(wait, until(time.UnixMilli(d.ran).Add(server.delayTick)))
		ticks := (server.now().Sub(server.began) + wait + server.delayTick - 1) / server.delayTick
		wait = until(server.began.Add(ticks * server.delayTick))
	}
	d.timer = server.after(wait, func() {
		d.ran = server.millis()
		d.timer, d.at = nil, 0
		s.dispatch()
		if d.timer == nil && len(d.heap) > 0 && d.heap[0].at > s.cutoff() {
			s.setTimer()
		}
	})
}
