package worker

import (
	"maps"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/attempts"
)

// room says whether the Consumer's memory limit has room for more messages that wait for their keys. These messages and
// those that wait for redelivery share the limit. lanes.mu guards room.
type room struct {
	// messages that wait or are out, and did not fit when they were last checked
	over   map[attempts.Key]pulsar.Message
	lost   int    // lanes that wait for a lost message; while there are any, messages are taken in any case
	full   change // reports whether no messages are taken
	logged time.Time
}

// isFull reports whether no more messages are taken. WithConcurrency messages may wait in any case. The caller holds
// mu.
func (l *lanes) isFull() bool {
	return len(l.room.over) > 0 && l.keys.waiting > l.concurrency && l.room.lost == 0
}

// fits reports whether a message that waits fits the memory limit.
func (r *run) fits(msg pulsar.Message) bool {
	fits, err := r.consumer.Keep(msg)
	return fits || err != nil // settling it returns the error, too
}

// checkRoom checks whether a message that waits fits. If it does not, slots may take no more messages.
func (l *lanes) checkRoom(msg pulsar.Message) {
	fits := l.fits(msg)
	l.mu.Lock()
	if key := attempts.KeyOf(msg); fits {
		delete(l.room.over, key)
	} else {
		l.room.over[key] = msg
	}
	l.mu.Unlock()
	l.notifyRoom()
}

// freeRoom notes that messages need no room any more. It checks whether others fit now, and wakes a slot, since the
// slot that had the messages may take no others.
func (l *lanes) freeRoom(tasks ...task) {
	l.mu.Lock()
	if len(l.room.over) == 0 {
		l.mu.Unlock()
		return
	}
	for _, t := range tasks {
		delete(l.room.over, attempts.KeyOf(t.msg))
	}
	over := maps.Clone(l.room.over)
	l.mu.Unlock()
	for key, msg := range over {
		if !l.fits(msg) {
			break
		}
		l.mu.Lock()
		delete(l.room.over, key)
		l.mu.Unlock()
	}
	l.wakeOne()
	l.notifyRoom()
}

// notifyRoom reports a change: there is no more room, or there is room again. It logs the lack of room, at most once a
// minute.
func (l *lanes) notifyRoom() {
	l.room.full.report(&l.mu, l.isFull, func(full bool) func() {
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
