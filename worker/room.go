package worker

import (
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// room says whether the Consumer's memory limit has room for more messages that wait for their keys. The Consumer counts them, beside those
// that wait for redelivery. As many as there are slots may wait in any case. lanes.mu guards it.
type room struct {
	over   []pulsar.Message // those that wait, or have their turn, and do not fit: until all of them do, or are done, no more are taken
	look   bool             // something ended since, and they may fit by now
	full   notice           // that there is none
	logged time.Time
}

// fits reports whether a message that waits fits the memory limit.
func (l *lanes) fits(msg pulsar.Message) bool {
	fits, err := l.consumer.Keep(msg)
	return fits || err != nil // settling it will tell
}

// fill notes whether a message that waits fits. The caller holds mu.
func (l *lanes) fill(t task, fits bool) {
	l.ends(t.msg) // or an earlier delivery of it would stay
	if !fits && !l.over && l.count > l.concurrency {
		l.room.over, l.room.look = append(l.room.over, t.msg), false
	}
}

// leaves notes that a message waits no longer. The caller holds mu.
func (l *lanes) leaves() {
	l.count--
	l.room.look = true
	if l.count <= l.concurrency {
		l.room.over = nil
	}
}

// ends notes that a message needs no room any more. The caller holds mu.
func (l *lanes) ends(msg pulsar.Message) {
	l.room.over = slices.DeleteFunc(l.room.over, func(over pulsar.Message) bool { return nameOf(over) == nameOf(msg) })
}

// done notes that a message, which had its turn, needs no room any more. Others may fit by now, and its slot may not be the one to look.
func (l *lanes) done(msg pulsar.Message) {
	if l.makesRoom(msg) {
		l.tellRoom()
	}
}

func (l *lanes) makesRoom(msg pulsar.Message) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.room.over) == 0 {
		return false
	}
	l.ends(msg)
	l.room.look = true
	l.wakeOne()
	return true
}

// lookForRoom takes messages again if those that did not fit do so by now.
func (l *lanes) lookForRoom() {
	l.mu.Lock()
	over := slices.Clone(l.room.over)
	l.room.look = false
	l.mu.Unlock()
	for _, msg := range over {
		if !l.fits(msg) {
			break
		}
		l.fitsNow(msg)
	}
	l.tellRoom()
}

func (l *lanes) fitsNow(msg pulsar.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends(msg)
}

// tellRoom tells whether there is room, if that changed. It logs that there is none, once a minute at most.
func (l *lanes) tellRoom() {
	l.room.full.tell(&l.mu, func() bool { return len(l.room.over) > 0 }, func(full bool) func() {
		waiting, log := l.count, full && time.Since(l.room.logged) >= time.Minute
		if log {
			l.room.logged = time.Now()
		}
		return func() {
			l.notifyPaused(full, PauseMemoryLimit)
			if log {
				l.logger.Warn("worker: the memory limit is reached: no more messages are taken until one that waits for its key is done",
					append(l.who(), "waiting", waiting)...)
			}
		}
	})
}
