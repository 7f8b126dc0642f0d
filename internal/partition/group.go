package partition

import (
	"errors"
	"math"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/clock"
)

// Kind is the type of a subscription.
type Kind uint8

const (
	Exclusive Kind = iota
	Failover
	Shared
	KeyShared
)

// Options describe the subscription and the wishes of the application.
type Options struct {
	Kind          Kind
	NonDurable    bool          // the broker forgets the subscription with its connection
	IndexAcks     IndexAcks     // whether client and broker acknowledge single messages of a batch
	Stays         bool          // a due message in memory is not given back for other consumers
	Drops         bool          // a message that fails is not kept in memory; it is requested when it is due
	MemoryLimit   int64         // bytes of bodies that are kept; 0 for none
	Deaf          bool          // Lost and Sent are not called, as after Wrap: an unrequested copy is the sign of a lost connection
	MaxDeliveries uint32        // after so many deliveries a message is a dead letter; 0 for no limit
	RequestTime   time.Duration // how long a request takes on its way to the broker
	AckedAfter    time.Duration // an acknowledgement of this age has reached the broker
	Reports       bool          // Decisions.Settled is wanted
}

// rewinds reports whether the broker answers a request for one entry with everything that is not acknowledged.
func (o *Options) rewinds() bool { return o.Kind == Exclusive || o.Kind == Failover }

// hasOthers reports whether the broker may at any time give this consumer's messages to another one.
func (o *Options) hasOthers() bool { return !o.rewinds() && !o.NonDurable }

// isLast reports whether a message with this redelivery count is given up if the application does not settle
// it this time.
func (o *Options) isLast(count uint32) bool {
	return o.MaxDeliveries > 0 && uint64(count)+1 >= uint64(o.MaxDeliveries)
}

// Group has the partitions of a subscription, and the memory, clock and order that they share. The caller
// serializes all calls.
type Group struct {
	o          Options
	partitions map[string]*Partition
	latest     *Partition           // the partition that was looked up last
	ledgers    map[int64]*Partition // the owner of each ledger; nil if several topics share it
	clock      clock.Clock[timed]
	ready      []*message // for Take, in the order in which they became ready; some may not be ready any more
	newsTurn   bool       // the last hand-over came from memory, so a new message is next
	memory     int64      // bytes of the bodies that are kept
	outcomes   outcomes
	hands      uint64 // number of the newest hand-over that has one
	spare      *entry // the entry that left the table last, for newEntry

	epoch     uint64        // grows with each connection or partition that may be lost
	floor     uint64        // messages of an earlier epoch are stale, in all partitions
	connected uint64        // the newest epoch in which all partitions had a connection
	lossAt    time.Duration // when the epoch began

	reading reading
	out     Decisions
}

// New returns a Group without partitions. They are added as their messages arrive.
func New(o Options) *Group {
	if o.AckedAfter <= 0 {
		o.AckedAfter = ackedAfter
	}
	return &Group{o: o, partitions: map[string]*Partition{}, ledgers: map[int64]*Partition{},
		epoch: firstEpoch, floor: firstEpoch, connected: firstEpoch}
}

// firstEpoch is the epoch of a Group that has lost no connection.
const firstEpoch = 1

// ackedAfter is the default of Options.AckedAfter: acknowledgements are sent every 100 ms, and a busy machine
// may take long.
const ackedAfter = 2100 * time.Millisecond

// ID names a message. An ID without a Topic is a bare id: its topic is the one that has the ledger. Index is −1 for a
// whole entry.
type ID struct {
	Topic  string
	Ledger int64
	Entry  int64
	Index  int32
}

func (id ID) position() position { return position{id.Ledger, id.Entry} }

func (id ID) place() place { return place{id.position(), max(0, id.Index)} }

// ErrAmbiguous is returned for a bare id of a ledger that several topics share, as a shadow topic and its source do.
var ErrAmbiguous = errors.New("the ledger belongs to several topics of this consumer: settle by message, not by id")

// partitionOf returns the partition that an id belongs to, or nil if that is unknown.
func (g *Group) partitionOf(id ID) (*Partition, error) {
	if id.Topic != "" {
		return g.topic(id.Topic), nil
	}
	p, known := g.ledgers[id.Ledger]
	if known && p == nil {
		return nil, ErrAmbiguous
	}
	return p, nil
}

// find returns the message that an id names, or nil if it is not known.
func (g *Group) find(id ID) (*message, error) {
	p, err := g.partitionOf(id)
	if p == nil {
		return nil, err
	}
	e := p.entryAt(id.position())
	if e == nil {
		return nil, nil
	}
	if id.Index < 0 {
		if e.isBatch() {
			return nil, nil
		}
		id.Index = 0
	}
	return e.known(id.Index), nil
}

// Decisions are for the caller to carry out, with no lock held.
type Decisions struct {
	Requests []Request  // to send to the broker
	GiveUps  []Delivery // to publish as dead letters: their last delivery timed out; Nack them first, and then BeginAck
	TimedOut []Delivery // for observers
	Settled  []Delivery // for a log of attempts, if Options.Reports
}

func (d *Decisions) areNone() bool {
	return d.Requests == nil && d.GiveUps == nil && d.TimedOut == nil && d.Settled == nil
}

// Request asks the broker to send an entry again.
type Request struct {
	Source any // of the partition
	Topic  string
	ID     any // of the newest delivery of a message that is due
}

// Due runs the timers that are due at now, and returns the decisions since its last call; nil if there are none. Call
// it after every call of another method, and at the time that Next returns.
func (g *Group) Due(now time.Duration) *Decisions {
	g.reading.at(now)
	for t := g.clock.Pop(now); t != nil; t = g.clock.Pop(now) {
		switch {
		case t.Of.request != nil:
			g.requestOver(now, t.Of.request)
		case t.Of.settled != nil:
			g.turnSettled(now, t.Of.settled)
		case t.Of.message.busy > 0:
			t.Of.message.overdue = true
		default:
			g.timeOver(now, t.Of.message)
		}
	}
	if g.out.areNone() {
		return nil
	}
	out := g.out
	g.out = Decisions{}
	return &out
}

// Next returns when Due has more to do; ok is false if nothing waits.
func (g *Group) Next() (at time.Duration, ok bool) {
	return g.clock.Next()
}

// add returns a time after now, without an overflow.
func add(now, d time.Duration) time.Duration {
	if d = max(0, d); d > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + d
}

// timeOver handles a message whose timer went off.
func (g *Group) timeOver(now time.Duration, m *message) {
	switch m.state {
	case Held:
		g.ackTimeoutOver(now, m)
	case Waiting:
		g.delayOver(now, m)
	case Ready:
		g.readyTooLong(now, m)
	case Unseen, Asked, Settled:
	}
}
