package worker

import (
	"errors"
	"slices"
	"time"

	"github.com/pulsar-redelivery/redelivery"
)

// This file has what becomes of messages that are another consumer's by now.

// lookAgain is how often to look whether a message is still the Consumer's.
const lookAgain = 100 * time.Millisecond

// isMine reports whether a message, whose turn it is, is still the Consumer's; known is false if it has no turn any more: it waits until that
// is known, or is dropped with what waited behind it and was lost too.
func (l *lanes) isMine(t task) (mine, known bool) {
	mine, err := l.consumer.Reclaim(t.counted())
	switch {
	case mine, errors.Is(err, redelivery.ErrClosed): // the next call of the Consumer tells
		return true, true
	case err == nil:
		l.looksAgain(t)
		return false, false
	}
	l.dropLost(t.lane)
	t.beat.stop()
	l.counts.lost.Add(1)
	l.forget(t)
	return false, false
}

// looksAgain has a message wait until it is known whose it is, and its key with it.
func (l *lanes) looksAgain(t task) {
	l.mu.Lock()
	over, tell := l.over, func() {}
	if !over {
		tell = l.waits(t, 1)
		t.lane.tried = t
		t.lane.again = time.AfterFunc(lookAgain, func() { l.due(t.lane) })
	}
	l.mu.Unlock()
	tell()
	if over {
		t.beat.stop()
		l.counts.left.Add(1)
	}
}

// dropLost drops what waits in a lane, of which the caller has the turn, and is lost.
func (l *lanes) dropLost(of *lane) {
	l.mu.Lock()
	waiting := slices.Clone(of.queue)
	l.mu.Unlock()
	var lost []task
	kept := waiting[:0:0]
	for _, t := range waiting {
		if _, err := l.consumer.Reclaim(t.msg); errors.Is(err, redelivery.ErrNotInFlight) {
			lost = append(lost, t)
		} else {
			kept = append(kept, t)
		}
	}
	var tell []func()
	l.mu.Lock()
	if !l.over {
		of.queue = append(kept, of.queue[len(waiting):]...)
		for _, t := range lost {
			tell = append(tell, l.waits(t, -1))
		}
		l.counts.lost.Add(uint64(len(lost)))
	}
	l.mu.Unlock()
	for _, t := range lost {
		t.beat.stop()
	}
	for _, f := range tell {
		f()
	}
}
