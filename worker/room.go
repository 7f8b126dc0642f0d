package worker

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// room says whether the Consumer's memory limit has room for more messages that wait for their keys. The Consumer counts them, beside those
// that wait for redelivery. As many as there are slots may wait in any case. lanes.mu guards it.
type room struct {
	over   pulsar.Message // the last one that was taken, if it does not fit: until it does no more are taken
	look   bool           // something ended since, and it may fit by now
	full   notice         // that there is none
	logged time.Time
}

// fits reports whether a message that waits fits the memory limit.
func (l *lanes) fits(msg pulsar.Message) bool {
	fits, err := l.consumer.Keep(msg)
	return fits || err != nil // settling it will tell
}

// fill notes whether a message that was taken and waits fits. The caller holds mu.
func (l *lanes) fill(t task, fits bool) {
	if !fits && !l.over && l.count > l.concurrency {
		l.room.over, l.room.look = t.msg, false
	}
}

// leaves notes that a message waits no longer. The caller holds mu.
func (l *lanes) leaves(t task) {
	l.count--
	l.room.look = true
	if over := l.room.over; over != nil && (nameOf(over) == nameOf(t.msg) || l.count <= l.concurrency) {
		l.room.over = nil
	}
}

// lookForRoom takes messages again if the one that did not fit does so by now.
func (l *lanes) lookForRoom() {
	l.mu.Lock()
	over := l.room.over
	l.room.look = false
	l.mu.Unlock()
	if over == nil || !l.fits(over) {
		return
	}
	l.mu.Lock()
	if now := l.room.over; now != nil && nameOf(now) == nameOf(over) {
		l.room.over = nil
	}
	l.mu.Unlock()
	l.tellRoom()
}

// tellRoom tells whether there is room, if that changed. It logs that there is none, once a minute at most.
func (l *lanes) tellRoom() {
	l.room.full.tell(&l.mu, func() bool { return l.room.over != nil }, func(full bool) func() {
		waiting, log := l.count, full && time.Since(l.room.logged) >= time.Minute
		if log {
			l.room.logged = time.Now()
		}
		return func() {
			l.tellPaused(full, PauseMemoryLimit)
			if log {
				l.logger.Warn("worker: the memory limit is reached: no more messages are taken until one that waits for its key is done",
					append(l.who(), "waiting", waiting)...)
			}
		}
	})
}
