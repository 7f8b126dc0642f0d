package worker

import (
	"errors"
	"slices"
	"time"

	"github.com/pulsar-redelivery/redelivery"
)

// When a message has waited, this file drops it if it belongs to another consumer by then.

// isOurs reports whether a message still belongs to the Consumer. It also reports true if the Consumer is closed, since
// the next call of the Consumer returns that error.
func (r *run) isOurs(t task) bool {
	err := r.consumer.Reclaim(t.counted())
	return err == nil || errors.Is(err, redelivery.ErrClosed)
}

// mayBegin reports whether a message that waited may be handled, and gives the handler its whole ack timeout. If the
// message may not be handled, mayBegin drops it: another consumer may have it, or it was settled or timed out
// meanwhile.
func (r *run) mayBegin(t task) bool {
	switch {
	case !r.isOurs(t):
		r.counts.lost.Add(1)
		if t.lane != nil {
			r.lanes.lose(t)
		}
		return false
	case errors.Is(r.consumer.InProgress(t.msg), redelivery.ErrNotInFlight):
		r.forget(&t)
		return false
	}
	return true
}

// lose drops a lost message that is out, and the lost messages behind it in its lane.
func (l *lanes) lose(t task) {
	l.dropLost(t.lane)
	if !l.ending() {
		l.freeRoom(t)
		l.holdBack(t.lane)
	}
}

// lostTime is how long a lane waits for a lost message. If another partition's connection was lost, the Consumer
// requests the message after a second, and newer messages of its key may come first.
const lostTime = 3 * time.Second

// holdBack keeps a lane waiting for its lost message. If the message is redelivered within lostTime, it goes before
// newer messages of its key. During lostTime slots take messages even if there is no room, since the lost message may
// be among them.
func (l *lanes) holdBack(of *lane) {
	defer l.notifyRoom()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hasEnded() {
		return
	}
	l.room.lost++
	l.wakeOne()
	of.timer = time.AfterFunc(lostTime, func() {
		l.mu.Lock()
		l.room.lost--
		l.mu.Unlock()
		l.notifyRoom()
		l.free(of)
	})
}

// dropLost drops the lost messages of a lane. The caller has the lane's message that is out.
func (l *lanes) dropLost(of *lane) {
	l.mu.Lock()
	gone := slices.Clone(of.queue)
	l.mu.Unlock()
	gone = slices.DeleteFunc(gone, l.isOurs)
	if len(gone) == 0 {
		return
	}
	l.mu.Lock()
	if !l.hasEnded() {
		l.keys.drop(of, gone)
		l.counts.lost.Add(uint64(len(gone)))
		l.wakeOne() // another slot may take the next message
	}
	l.mu.Unlock()
	l.freeRoom(gone...)
}

// dropLost drops the lost messages among the slot's first n messages, and returns how many of the n are left.
func (s *slot) dropLost(n int) (left int) {
	rest := s.tasks[n:]
	own := slices.DeleteFunc(slices.Clone(s.tasks[:n]), func(t task) bool { return !s.mayBegin(t) })
	if len(own) < n {
		s.holdAll(append(own, rest...))
	}
	return len(own)
}
