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
	NonDurable    bool          // the broker forgets the subscription when its connection ends
	IndexAcks     IndexAcks     // whether client and broker acknowledge single messages of a batch
	Stays         bool          // a due message in memory never goes back to the broker for other consumers
	Drops         bool          // a message that fails is not kept in memory; it is requested when it is due
	MemoryLimit   int64         // bytes of bodies that are kept; 0 for none
	Deaf          bool          // Lost and Sent are not called, as after Wrap: an unrequested copy shows a loss
	MaxDeliveries uint32        // after so many deliveries a message is a dead letter; 0 for no limit
	RequestTime   time.Duration // how long a request takes on its way to the broker
	AckedAfter    time.Duration // an acknowledgement of this age has reached the broker
	Reports       bool          // Decisions.Settled is wanted
}

// rewinds reports whether the broker answers a request for one entry with everything that is not acknowledged.
func (o *Options) rewinds() bool { return o.Kind == Exclusive || o.Kind == Failover }

// hasOthers reports whether the broker may at any time give this consumer's messages to another one.
func (o *Options) hasOthers() bool { return !o.rewinds() && !o.NonDurable }

// IsLast reports whether the delivery with a redelivery count is a message's last one. A maxDeliveries of 0 means no
// limit.
func IsLast(count, maxDeliveries uint32) bool {
	return maxDeliveries > 0 && uint64(count)+1 >= uint64(maxDeliveries)
}

func (o *Options) isLast(count uint32) bool { return IsLast(count, o.MaxDeliveries) }

// Group has the partitions of a subscription, and the memory, clock and order that they share. No two calls may run at
// the same time.
type Group struct {
	o          Options
	partitions map[string]*Partition
	latest     *Partition           // the partition that was looked up last
	ledgers    map[int64]*Partition // the owner of each ledger; nil if several topics share it
	clock      clock.Clock[timed]
	ready      []*message // for Take, in the order in which they became ready; some may not be ready any more
	newIsNext  bool       // the last hand-over was from memory, so a new message is next
	memory     int64      // bytes of the bodies that are kept
	outcomes   outcomes
	hands      uint64 // number of the newest hand-over that has one
	spare      *entry // the entry that left the table last, for newEntry

	epoch          uint64        // grows with each connection or partition that may be lost
	floor          uint64        // messages of an earlier epoch are stale, in all partitions
	connectedEpoch uint64        // the newest epoch in which all partitions had a connection
	lossAt         time.Duration // when the epoch began

	reading reading
	out     Decisions
}

// New returns a Group without partitions. They are added as their messages arrive.
func New(o Options) *Group {
	if o.AckedAfter <= 0 {
		o.AckedAfter = ackedAfter
	}
	return &Group{o: o, partitions: map[string]*Partition{}, ledgers: map[int64]*Partition{},
		epoch: firstEpoch, floor: firstEpoch, connectedEpoch: firstEpoch}
}

// firstEpoch is the epoch of a Group that has lost no connection.
const firstEpoch = 1

// ackedAfter is the default of Options.AckedAfter. Upstream sends acknowledgements every 100 ms, and a busy computer
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

// ErrAmbiguous is the error for a bare id of a ledger that several topics share, as a shadow topic and its source do.
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

// add returns now + d, or the largest time if that overflows.
func add(now, d time.Duration) time.Duration {
	if d = max(0, d); d > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + d
}
