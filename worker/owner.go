package worker

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

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
	l.room.over = nil // what comes again tells, and has to be taken
	l.mu.Unlock()
	if !l.wait(t, lookAgain, true) {
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
	for _, t := range waiting {
		if _, err := l.consumer.Reclaim(t.counted()); errors.Is(err, redelivery.ErrNotInFlight) {
			lost = append(lost, t)
		}
	}
	l.mu.Lock()
	if !l.over {
		next := 0 // of lost, which is in the order of the queue
		of.queue = slices.DeleteFunc(of.queue, func(t task) bool {
			isLost := next < len(lost) && lost[next].msg == t.msg
			if isLost {
				next++
			}
			return isLost
		})
		for _, t := range lost {
			l.leaves()
			l.ends(t.msg)
		}
		l.counts.lost.Add(uint64(len(lost)))
		l.wakeOne() // there may be room, and the caller is not the one who takes what comes
	}
	l.mu.Unlock()
	for _, t := range lost {
		t.beat.stop()
	}
	l.tellRoom()
}

// add puts a message in its place: what was lost and comes again may be before what is there already.
func (of *lane) add(t task) {
	at := len(of.queue)
	for at > 0 && comesBefore(t.msg, of.queue[at-1].msg) {
		at--
	}
	of.queue = slices.Insert(of.queue, at, t)
}

// putBack puts a message back that had its turn: only what is known to be before it goes before it.
func (of *lane) putBack(t task) {
	at := 0
	for at < len(of.queue) && comesBefore(of.queue[at].msg, t.msg) {
		at++
	}
	of.queue = slices.Insert(of.queue, at, t)
}

// comesBefore reports whether a message is before another of its partition.
func comesBefore(msg, other pulsar.Message) bool {
	a, b := msg.ID(), other.ID()
	return cmp.Or(cmp.Compare(a.LedgerID(), b.LedgerID()), cmp.Compare(a.EntryID(), b.EntryID()),
		cmp.Compare(a.BatchIdx(), b.BatchIdx())) < 0 && msg.Topic() == other.Topic()
}

// isLost reports whether a message that waited is not to be handled: it is another consumer's by now, or comes again, since its ack timeout was
// over before it waited. Of a key what is not known yet waits in its lane.
func (r *run) isLost(t task) bool {
	if t.lane != nil {
		mine, _ := r.lanes.isMine(t)
		return !mine
	}
	_, err := r.consumer.Reclaim(t.counted())
	switch {
	case errors.Is(err, redelivery.ErrNotInFlight):
		r.counts.lost.Add(1)
	case t.waited && errors.Is(r.consumer.InProgress(t.msg), redelivery.ErrNotInFlight):
	default:
		return false
	}
	t.beat.stop()
	return true
}

// dropLost lets go of those of the first n messages that waited and are lost, and returns how many of them are left. If the Consumer is closed it
// leaves all that the slot has, and returns an error.
func (s *slot) dropLost(n int) (left int, err error) {
	if !s.tasks[0].waited && s.batch == (Batch{}) && s.limiter == nil && s.crashes == nil {
		return n, nil
	}
	if err := s.ifClosed(s.tasks[0]); err != nil {
		s.leaveOwn(untried)
		return 0, err
	}
	rest := s.tasks[n:]
	own := slices.DeleteFunc(s.tasks[:n], s.isLost)
	if len(own) < n {
		s.hold(append(own, rest...)...)
	}
	if len(s.tasks) == 0 {
		s.portion = 0
	}
	return len(own), nil
}
