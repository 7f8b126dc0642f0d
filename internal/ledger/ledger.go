// Package ledger decides what becomes of every message between the consumer it came from and the application.
//
// The Ledger has a table of messages, the two trackers that time them, and one lock for both. Each verb of the application
// is one call. It calls no consumer and no policy under its lock. docs/architecture.md has the states of a message, README.md the rules.
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
	// RedeliversAll tells that the broker answers a request for one message with everything that is unacknowledged, as it does on
	// Exclusive and Failover.
	RedeliversAll bool
	// Keeps tells that messages that the application failed on wait here rather than at the broker.
	Keeps bool
	// Others tells that the broker may send what is given back to another consumer, which may do better, and KeyOrder that a key does not
	// move to another before its messages are settled or given back.
	Others, KeyOrder bool
	// OneTopic tells that the consumer has one topic, of which partitions are several, so that a lost connection is that topic's.
	OneTopic bool
	// NonDurable tells that the broker forgets the subscription with the connection, as pulsar.NonDurable has it: what waits here it does
	// not send again.
	NonDurable bool
	// IndexAcks says whether the client acknowledges the messages of a batch one by one, and whether the broker is known to keep that.
	IndexAcks IndexAcks
	// WholeBatches tells that upstream sends nothing of a batch before its last message is acknowledged, and tells nobody: it does not
	// acknowledge by index, nor wait for responses, and there are no interceptors.
	WholeBatches bool
	// DropsCovered tells that upstream drops what it has acknowledged cumulatively when it comes again, and does not know whether the broker
	// has that acknowledgement.
	DropsCovered bool
	// MemoryLimit is how many bytes of messages are kept here.
	MemoryLimit int64
	// Queue is how many deliveries may be prefetched for each partition.
	Queue    int
	AckGroup AckGroup
	// SendDelay is after how long acknowledgements are surely at the broker, which may forget the last ones when it unloads a
	// topic, and AskDelay after how long requests are surely sent.
	SendDelay, AskDelay time.Duration
	// MaxDeliveries is after how many deliveries a message is given up; 0 for never.
	MaxDeliveries uint32

	// ReconnectEvents tells that Disconnected and Received are called.
	ReconnectEvents bool
	// Observed tells that it is to be known since when and for what messages wait, Timed that it is to be known since when the
	// application has them.
	Observed, Timed bool
	Calls           Calls
}

// AckGroup says how many acknowledgements are sent together.
type AckGroup struct {
	Size   int
	BySize bool // no clock has them sent, but their number alone
}

// Calls are what a Ledger calls, with no lock held.
type Calls struct {
	Ask      func(pulsar.Consumer, string, pulsar.MessageID) // requests a message of a topic
	Wake     func()                                          // Next has one
	AckAgain func()                                          // Ledger.AckAgain is to be called
	GiveUp   func(Delivery)                                  // the ack timeout of a last delivery is over: settle it
	TimedOut func(Settling)                                  // that of any other; nil if nobody wants to know

	// Settled tells that a message is settled; nil if nobody wants to know. Unlike the others it is called with the lock held, so that it
	// must not wait, nor call the Ledger.
	Settled func(topic string, ledger, entry int64, index int32)
}

// Ledger knows every message that was delivered and is not settled, and which entries are. Any number of
// goroutines may use it.
type Ledger struct {
	o        Options
	nacks    *nack.Tracker[uint64]       // of messages that wait: for their delay, or for what was asked for
	timeouts *acktimeout.Tracker[uint64] // of messages that the application has
	hasNext  atomic.Bool

	mu         sync.Mutex // guards what follows; a tracker's own lock is taken after it
	table      table
	offer      *offer
	young      young
	outcomes   outcomes
	rounds     *time.Timer // ends the round
	roundsLeft int         // until what was acknowledged is sure
	at         moments
	closed     bool
	indexAcks  IndexAcks // as Options.IndexAcks, and as the last delivery that showed it
	stats      Stats
	receipts   uint       // calls of Received
	reports    []Settling // of timeouts
}

// moments are when something was so the last time.
type moments struct {
	start time.Time // the Ledger was made: Now counts from then
	idle  time.Time // nothing came although somebody waited
	empty time.Time // the queue was empty: where a little comes all the time, that is soon, and idle never
}

// Stats counts what a Ledger did, and says what it has.
type Stats struct {
	Waiting, Ready                       int // Ready are those of Waiting whose delay is over
	BufferedBytes                        int64
	Buffered, Dropped, Redelivered, Late uint64
	Unfinished, Arriving                 int // settled messages of batches that are not settled whole; and what is to come of these
	IndexAcks                            IndexAcks
	Oldest                               time.Duration // for how long the message has waited that waits longest, if somebody observes
}

// New returns an empty Ledger. Close ends its goroutines.
func New(o Options) *Ledger {
	l := &Ledger{o: o, indexAcks: o.IndexAcks, at: moments{start: time.Now()}}
	l.table = newTable(&l.o)
	l.nacks = nack.New(nil, l.delaysOver) // without policies: the caller asks those, and gives delays
	l.timeouts = acktimeout.New(0, nil, l.timeoutsOver)
	l.rounds, l.young.timer = stoppedTimer(l.round), stoppedTimer(l.ripe)
	return l
}

// Close ends what the Ledger started: nothing comes any more, and nothing is asked for. What is being settled may still be, until Clear
// forgets it. Calling Close again does nothing.
func (l *Ledger) Close() {
	l.mu.Lock()
	l.closed = true
	for l.offer != nil {
		l.withdraw()
	}
	l.rounds.Stop()
	l.young.timer.Stop()
	l.mu.Unlock()
	l.nacks.Close()
	l.timeouts.Close()
}

// stoppedTimer returns a timer that calls f once it is reset.
func stoppedTimer(f func()) *time.Timer {
	timer := time.AfterFunc(time.Hour, f)
	timer.Stop()
	return timer
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
	l.young.handed = nil
	for _, s := range l.table.streams {
		s.gone = true
	}
	before := l.table
	l.table = newTable(&l.o)
	for topic, s := range before.streams {
		if !s.lost { // what comes of it is of the connection that followed
			l.table.streamNamed(topic)
		}
	}
	l.table.lost, l.table.away = before.lost, before.away
	l.hasNext.Store(false)
}

// Stats returns what the Ledger did until now and has.
func (l *Ledger) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Ready = l.table.states[due] + l.table.states[ready]
	s.Waiting = l.table.states[waiting] + s.Ready
	s.BufferedBytes = l.table.memory.bytes
	s.Oldest = l.oldest()
	s.Unfinished, s.Arriving = l.unfinished()
	s.IndexAcks = l.indexAcks
	return s
}

// Len returns how many entries are known beside those that are settled.
func (l *Ledger) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.table.entries.Len()
}

// untrack ends the time that is measured for a message. The caller holds mu.
func (l *Ledger) untrack(ref Ref, r *record) {
	switch r.state {
	case waiting, due, ready:
		l.nacks.Untrack(uint64(ref))
	case inFlight:
		if r.flags.has(timed) {
			l.timeouts.Untrack(uint64(ref))
		}
		if r.flags.has(doubtful) {
			l.nacks.Untrack(uint64(ref))
		}
	default: // no deadline runs
	}
}
