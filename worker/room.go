package worker

import (
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// room says whether the Consumer's memory limit has room for more messages that wait for their keys. These messages and
// those that wait for redelivery share the limit. WithConcurrency messages may wait in any case. lanes.mu guards room.
type room struct {
	over   []pulsar.Message // messages that wait or are out, and do not fit; while there are any, no message is taken
	look   bool             // a message was taken or settled, so those in over may fit now
	full   change           // reports whether over has messages
	lost   int              // lanes that wait for a lost message; while there are any, over is empty
	logged time.Time
}

// fits reports whether a message that waits fits the memory limit.
func (r *run) fits(msg pulsar.Message) bool {
	fits, err := r.consumer.Keep(msg)
	return fits || err != nil // settling it returns the error, too
}

// fill notes that a message waits, and whether it fits. The caller holds mu.
func (l *lanes) fill(t task, fits bool) {
	l.ends(t.msg) // removes an earlier delivery of the message
	if !fits && !l.hasEnded() && l.keys.waiting > l.concurrency && l.room.lost == 0 {
		l.room.over, l.room.look = append(l.room.over, t.msg), false
	}
}

// leaves notes that a message no longer waits. The caller holds mu.
func (l *lanes) leaves() {
	l.room.look = true
	if l.keys.waiting <= l.concurrency {
		l.room.over = nil
	}
}

// ends notes that a message needs no room any more. The caller holds mu.
func (l *lanes) ends(msg pulsar.Message) {
	l.room.over = slices.DeleteFunc(l.room.over, func(over pulsar.Message) bool { return nameOf(over) == nameOf(msg) })
}

// done notes that a message that was out needs no room any more. Other messages may fit now. done wakes a slot that
// checks this, since the slot that had the message may not check.
func (l *lanes) done(msg pulsar.Message) {
	l.mu.Lock()
	full := len(l.room.over) > 0
	if full {
		l.ends(msg)
		l.room.look = true
		l.wakeOne()
	}
	l.mu.Unlock()
	if full {
		l.notifyRoom()
	}
}

// lookForRoom checks whether the messages in over fit now. When all of them fit, slots take messages again.
func (l *lanes) lookForRoom() {
	l.mu.Lock()
	over := slices.Clone(l.room.over)
	l.room.look = false
	l.mu.Unlock()
	for _, msg := range over {
		if !l.fits(msg) {
			break
		}
		l.mu.Lock()
		l.ends(msg)
		l.mu.Unlock()
	}
	l.notifyRoom()
}

// notifyRoom reports a change: there is no more room, or there is room again. It logs the lack of room, at most once a
// minute.
func (l *lanes) notifyRoom() {
	l.room.full.report(&l.mu, func() bool { return len(l.room.over) > 0 }, func(full bool) func() {
		waiting, log := l.keys.waiting, full && time.Since(l.room.logged) >= time.Minute
		if log {
			l.room.logged = time.Now()
		}
		return func() {
			l.notifyPaused(full, PauseMemoryLimit)
			if log {
				l.logger.Warn("worker: the memory limit is reached: no more messages are taken until one that waits "+
					"for its key is done",
					append(l.who(), "waiting", waiting)...)
			}
		}
	})
}
