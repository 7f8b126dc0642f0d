package worker

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// lanes keep the messages of each key in order. Of a key one message at a time is with a slot, or waits to be tried again; those
// that come meanwhile wait in its lane. A slot that wants a message gets one whose turn it is, or takes one from the Consumer.
type lanes struct {
	*run

	mu        sync.Mutex // guards what follows; the Consumer is not called while it is held
	byKey     map[laneKey]*lane
	ready     []*lane            // whose first message has its turn
	count     int                // of messages that wait
	pulling   context.CancelFunc // ends the Receive of the slot that takes from the Consumer; nil if none does
	idle      int                // slots that wait for wake
	cameAgain bool               // what was taken last had failed
	room      room
	over      bool // the Run is

	wake chan struct{} // has one of the idle slots look again
}

// lane is a key of which there are messages.
type lane struct {
	key   laneKey
	queue []task      // in order; the one that has its turn was taken out
	again *time.Timer // after which the first has its turn; nil if none waits for that
}

// laneKey is a key of a topic. Its partitions are one topic: whoever changes their number moves keys from one to another.
type laneKey struct{ topic, key string }

func newLanes(r *run) *lanes {
	return &lanes{run: r, byKey: map[laneKey]*lane{}, wake: make(chan struct{}, 1)}
}

// keyOf returns the key that Key_Shared goes by; "" for none.
func keyOf(msg pulsar.Message) string { return cmp.Or(msg.OrderingKey(), msg.Key()) }

// next returns a message whose turn it is.
func (l *lanes) next(ctx context.Context) (task, error) {
	for first := true; ; first = false {
		l.mu.Lock()
		l.room.look = l.room.look || first // the caller's last message may have made room
		pulls := l.pulling == nil && len(l.room.over) == 0
		newsTurn := pulls && l.cameAgain // or keys that always fail would keep the others waiting
		switch {
		case ctx.Err() != nil:
			l.wakeOne() // in place of this slot
			l.mu.Unlock()
			return task{}, ctx.Err()
		case len(l.ready) > 0 && !newsTurn:
			t := l.takeTurn()
			l.cameAgain = t.tries > 0
			l.wakeOne()
			l.mu.Unlock()
			l.tellRoom()
			switch mine, known := l.isMine(t); {
			case !known:
			case mine && l.consumer.InProgress(t.msg) == nil:
				return t, nil
			case mine: // it was settled by a handler that took too long, and so had it come again
				l.forget(t)
			}
		case l.pulling == nil && len(l.room.over) > 0 && l.room.look:
			l.mu.Unlock()
			l.lookForRoom()
		case pulls:
			var pull context.Context
			if pull, l.pulling = context.WithCancel(ctx); len(l.ready) > 0 {
				go l.pulling() // what is there already is taken first
			}
			l.mu.Unlock()
			t, mine, err := l.pull(pull)
			if mine && t.lane != nil {
				mine, _ = l.isMine(t)
			}
			if mine || err != nil {
				return t, err
			}
		default:
			l.idle++
			l.mu.Unlock()
			select {
			case <-l.wake:
			case <-ctx.Done():
			}
			l.mu.Lock()
			l.idle--
			l.mu.Unlock()
		}
	}
}

// pull takes a message from the Consumer. It is the caller's if no other of its key is before it.
func (l *lanes) pull(ctx context.Context) (t task, mine bool, err error) {
	msg, err := l.consumer.Receive(ctx)
	if err != nil && ctx.Err() != nil {
		msg, err = nil, nil // there is something else to look at
	}
	if t.msg = msg; msg != nil && keyOf(msg) != "" {
		t.beat = l.heartbeat(msg, time.Time{})
	}
	if msg != nil && l.isAtWork(t) {
		msg = nil
	}
	l.mu.Lock()
	l.cameAgain = l.cameAgain && msg != nil
	if msg != nil {
		if mine = l.enter(&t); mine {
			l.cameAgain = false
		} else {
			l.count++
			l.mu.Unlock()
			fits := l.fits(t.msg) // before the next one is taken
			l.mu.Lock()
			l.fill(t, fits)
		}
	}
	l.pulling()
	l.pulling = nil
	l.wakeOne()
	l.mu.Unlock()
	l.tellRoom()
	return t, mine, err
}

// enter puts a message into its lane, and reports whether it is the first there. The caller holds mu.
func (l *lanes) enter(t *task) bool {
	key := laneKey{topicname.Base(t.msg.Topic()), keyOf(t.msg)}
	if key.key == "" {
		return true
	}
	if t.lane = l.byKey[key]; t.lane == nil {
		t.lane = &lane{key: key}
		l.byKey[key] = t.lane
		return true
	}
	t.lane.add(*t)
	return false
}

// keep has a message that failed wait until it is tried again, and its key with it.
func (l *lanes) keep(t task, o outcome) {
	d, err := l.consumer.Delivery(t.counted())
	if err == nil {
		err = l.renew(&t)
	}
	if err != nil {
		l.leave(t, "it failed, and could not wait for its next try", err)
		l.forget(t)
		return
	}
	if o.verb == nack {
		o.delay = d.NackDelay
	}
	t.retries = 0
	if o.verb != snooze {
		t.tries++
	}
	if !l.wait(t, o.delay, l.fits(t.msg)) {
		t.beat.stop()
		l.leave(t, "it failed after Run returned", o.err)
	}
}

// wait puts a message that has its turn back, and has its key wait: if an earlier one comes meanwhile, that is the next. It reports false if the
// Run is over.
func (l *lanes) wait(t task, d time.Duration, fits bool) bool {
	defer l.tellRoom()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	l.count++
	l.fill(t, fits)
	t.lane.putBack(t)
	t.lane.again = time.AfterFunc(d, func() { l.due(t.lane) })
	return true
}

// due ends the waiting of a key.
func (l *lanes) due(of *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	of.again = nil
	l.turn(of)
}

// free lets the next message of a lane go on.
func (l *lanes) free(of *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(of.queue) == 0 {
		delete(l.byKey, of.key)
		return
	}
	l.turn(of)
}

// turn has a slot take the first message of a lane. The caller holds mu.
func (l *lanes) turn(of *lane) {
	l.ready = append(l.ready, of)
	if l.idle == 0 && l.pulling != nil {
		l.pulling() // or nobody would notice
	}
	l.wakeOne()
}

// takeTurn takes a message out whose turn it is. The caller holds mu.
func (l *lanes) takeTurn() task {
	of := l.ready[0]
	l.ready[0] = nil
	l.ready = l.ready[1:]
	t := of.queue[0]
	of.queue[0] = task{}
	of.queue = of.queue[1:]
	l.leaves()
	return t
}

func (l *lanes) wakeOne() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *lanes) isEmpty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count == 0
}

func (l *lanes) waiting() (messages int, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count, len(l.room.over) > 0
}

// readyNow is how many messages of batches wait only for a slot.
func (l *lanes) readyNow() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.ready {
		if of.queue[0].msg.ID().BatchSize() > 1 {
			n++
		}
	}
	return n
}

// abandon leaves what waits to the broker.
func (l *lanes) abandon() {
	l.mu.Lock()
	var left []task
	for _, of := range l.byKey {
		left = append(left, of.queue...)
		if of.again != nil {
			of.again.Stop()
		}
	}
	l.ready, l.count, l.room.over, l.over = nil, 0, nil, true
	l.mu.Unlock()
	for _, t := range left {
		t.beat.stop()
	}
	l.tellRoom()
	if len(left) > 0 {
		l.counts.left.Add(uint64(len(left)))
		l.logger.LogAttrs(l.lasting, slog.LevelWarn, "worker: messages that waited for their keys are left to the broker",
			slog.Int("messages", len(left)))
	}
}
