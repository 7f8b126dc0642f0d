// Package ledger decides what becomes of every message between the consumer it came from and the application.
//
// The Ledger has a table of messages, the two trackers that time them, and one lock for both. Each verb of the application
// is one call. It calls no consumer and no policy under its lock; docs/architecture.md has its states and moves as a table.
package ledger

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/acktimeout"
	"github.com/pulsar-redelivery/redelivery/nack"
)

// Options are what a Ledger is told about the consumer.
type Options struct {
	// Rewinds tells that the broker answers a request for one message with everything that is unacknowledged, as it does on
	// Exclusive and Failover.
	Rewinds bool
	// KeepSingles and KeepBatches tell that nacked messages wait here rather than at the broker: those that are no batch,
	// and those of batches.
	KeepSingles, KeepBatches bool
	// Alone tells that the broker sends a message of a batch back alone, once its siblings are acknowledged: it is asked for
	// then, although it waited here.
	Alone bool
	// IndexAcks tells that the client acknowledges the messages of a batch one by one. A broker that does not do so itself
	// leaves settled siblings out of what it sends again, but waits for an acknowledgement of the whole entry.
	IndexAcks bool
	// HoldLimit is how many bytes of messages are kept here.
	HoldLimit int64
	// Queue is how many deliveries may be prefetched for each partition, and AckGroup how many acknowledgements are
	// grouped.
	Queue, AckGroup int
	// SendDelay is after how long acknowledgements are surely at the broker, which may forget the last ones when it unloads a
	// topic, and AskDelay after how long requests are surely sent.
	SendDelay, AskDelay time.Duration
	// Ahead is how long before its time what waits at the broker is asked for, and then kept.
	Ahead time.Duration
	// MaxDeliveries is after how many deliveries a message is given up; 0 for never.
	MaxDeliveries uint32

	// Signals tells that Disconnected and Received are called.
	Signals bool

	// Ask requests a message of a topic, Wake tells that Next has one, GiveUp that the ack timeout of a last delivery is over,
	// which then is the callee's to settle. They are called with no lock held.
	Ask    func(pulsar.Consumer, string, pulsar.MessageID)
	Wake   func()
	GiveUp func(Delivery)

	// Observed tells that times are to be known, and TimedOut, if it is not nil, is told of ack timeouts but for those of
	// last deliveries. It is called with no lock held.
	Observed bool
	TimedOut func(Settling)
}

// Ledger knows every message that was delivered and is not settled, and those of which copies may come. Any number of
// goroutines may use it.
type Ledger struct {
	o        Options
	nacks    *nack.Tracker[uint64]       // of messages that wait: for their delay, or for what was asked for
	timeouts *acktimeout.Tracker[uint64] // of messages that the application has
	hasNext  atomic.Bool
	start    time.Time

	mu       sync.Mutex // guards what follows; a tracker's own lock is taken after it
	table    table
	settling map[Ref]chan struct{} // closed when a settling is over; only where another waits for it
	offer    *offer
	unmarked []*stream
	marker   *time.Timer
	epoch    uint64 // how often everything was forgotten
	idleAt   time.Time
	closed   bool
	stats    Stats
	reports  []Settling // of timeouts
}

// Stats counts what a Ledger did, and says what it has.
type Stats struct {
	Waiting                          int
	HeldBytes                        int64
	Held, Dropped, Redelivered, Late uint64
	Oldest                           time.Duration // for how long the message has waited that waits longest, if somebody observes
}

// New returns an empty Ledger. Close ends its goroutines.
func New(o Options) *Ledger {
	l := &Ledger{o: o, settling: map[Ref]chan struct{}{}, start: time.Now()}
	l.table = newTable(&l.o)
	l.nacks = nack.New(nil, l.delaysOver)
	l.timeouts = acktimeout.New(0, nil, l.timeoutsOver)
	return l
}

// Close forgets everything and ends what the Ledger started. Calling it again does nothing.
func (l *Ledger) Close() {
	l.Clear()
	l.mu.Lock()
	l.closed = true
	if l.marker != nil {
		l.marker.Stop()
	}
	l.mu.Unlock()
	l.nacks.Close()
	l.timeouts.Close()
}

// Clear forgets everything, as after a seek. When it returns, what is offered has been taken or withdrawn.
func (l *Ledger) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.offer != nil {
		l.withdraw()
	}
	l.nacks.Clear()
	l.timeouts.Clear()
	for _, s := range l.table.streams {
		s.gone = true
	}
	l.table = newTable(&l.o)
	l.hasNext.Store(false)
	l.unmarked = nil
	l.epoch++
	for _, over := range l.settling {
		close(over)
	}
	clear(l.settling)
}

// Stats returns what the Ledger did until now and has.
func (l *Ledger) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Waiting = l.table.states[waiting] + l.table.states[due] + l.table.states[ready]
	s.HeldBytes = l.table.shelf.bytes
	s.Oldest = l.oldest()
	return s
}

// Count returns the redelivery count of an unsettled message: how often the application had it before.
func (l *Ledger) Count(n Name) (count uint32, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _, r := l.table.find(n)
	if r == nil || r.state == acked {
		return 0, false
	}
	return r.count, true
}

// Len returns how many entries are known, those included of which copies may come.
func (l *Ledger) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.table.entries.Len()
}

// Unsettled returns how many messages of the fullest partition are not settled.
func (l *Ledger) Unsettled() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.table.streams {
		n = max(n, s.unsettled)
	}
	return n
}

// Disconnected tells that the connection of some topic was lost. What waits here may be another consumer's by now: kept
// messages are dropped, and either the broker sends them again or they are asked for when due.
func (l *Ledger) Disconnected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.withdraw()
	for _, s := range l.table.streams {
		l.table.disconnected(s)
		l.drop(s)
	}
}

// drop drops what is kept of a stream, whose messages may be another consumer's. The caller holds mu.
func (l *Ledger) drop(s *stream) {
	t := &l.table
	for slot := s.list.head; slot != none; slot = t.entries.At(slot).Value.next {
		e := &t.entries.At(slot).Value
		for i := range e.size() {
			e.at(i).flags |= doubtful
		}
	}
	for slot := range t.asked {
		if t.entries.At(slot).Value.stream() == s {
			delete(t.asked, slot)
		}
	}
	for ref := range t.shelf.messages {
		e, r := t.at(ref)
		if e.stream() != s {
			continue
		}
		t.drop(ref, e)
		if r.state == ready {
			t.move(ref, r, due)
			l.nacks.TrackFor(uint64(ref), l.patience())
		} else if r.state == settling && r.before == ready {
			r.before = due
			l.nacks.TrackFor(uint64(ref), l.patience())
		}
	}
}

// Connected tells that no topic is without its connection any more. Those of which another consumer has the messages are told
// again.
func (l *Ledger) Connected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.table.streams {
		s.log.lost = false
	}
}

// Received tells that a message was received after a connection was lost, and reports whether Received has to be called
// further on.
func (l *Ledger) Received(topic string, id pulsar.MessageID) (more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.table.streams {
		if s.topic == topic {
			l.table.received(s, entryOf(id))
		}
		more = more || s.log.taken < s.log.again
	}
	return more
}

// Activate tells whether a topic's messages are this consumer's, as on Failover. While they are not, what comes was prefetched
// and is another's. Should one of them be this consumer's all the same, it is asked for afterwards.
func (l *Ledger) Activate(topic string, active bool) {
	var a ask
	l.mu.Lock()
	l.withdraw()
	if s := l.table.streams[topic]; s != nil {
		if s.inactive = !active; s.inactive {
			l.drop(s)
		} else if s.missed != nil {
			a = ask{s.consumer, s.topic, s.missed}
			s.missed, s.log.emptied, s.log.asking = nil, 0, l.asking()
			l.unsent(s)
		}
	}
	l.mu.Unlock()
	l.send(a)
}

// Idle tells that nothing came for a while although somebody waited.
func (l *Ledger) Idle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idleAt = time.Now()
	asked := map[*stream]bool{}
	for slot, r := range l.table.asked {
		if l.idleAt.Sub(r.at) < l.o.AskDelay+answer {
			asked[l.table.entries.At(slot).Value.stream()] = true
		}
	}
	for _, s := range l.table.streams {
		if !asked[s] {
			l.table.idle(s)
		}
	}
}

// Gone tells that a child of the inner consumer is closed, and forgets what came from it.
func (l *Ledger) Gone(consumer pulsar.Consumer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.table.streams {
		if s.consumer == consumer {
			l.table.remove(s, l.untrack)
		}
	}
}

// untrack ends the time that is measured for a message. The caller holds mu.
func (l *Ledger) untrack(ref Ref, r *record) {
	state := r.state
	if state == settling {
		state = r.before
	}
	switch state {
	case waiting, due:
		l.nacks.Untrack(uint64(ref))
	case held:
		if r.flags.has(timed) {
			l.timeouts.Untrack(uint64(ref))
		}
	}
}

// unsent notes that something of a stream was given to the inner consumer, which sends it within SendDelay. The caller
// holds mu.
func (l *Ledger) unsent(s *stream) {
	if s.marking || s.gone {
		return
	}
	s.marking = true
	l.unmarked = append(l.unmarked, s)
	if len(l.unmarked) > 1 {
		return
	}
	if l.marker == nil {
		l.marker = time.AfterFunc(l.o.SendDelay, l.mark)
	} else {
		l.marker.Reset(l.o.SendDelay)
	}
}

// mark notes that SendDelay is over, for all streams that wait for it.
func (l *Ledger) mark() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	rest := l.unmarked[:0]
	for _, s := range l.unmarked {
		if s.marking = !s.gone && l.table.mark(s); s.marking {
			rest = append(rest, s)
		}
	}
	clear(l.unmarked[len(rest):])
	if l.unmarked = rest; len(rest) > 0 {
		l.marker.Reset(l.o.SendDelay)
	}
}
