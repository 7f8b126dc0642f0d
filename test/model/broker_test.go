package model

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// modelSub is a subscription of one topic at the broker. By Pulsar's documents and by experiments, it behaves like
// Pulsar 4.0. It sends whole entries while there are permits. If a consumer requests an entry, it sends that entry
// again on Shared, and all unacknowledged entries on Exclusive and Failover. If a consumer connects, it sends all
// unacknowledged entries.
type modelSub struct {
	w    *modelWorld
	cfg  *modelConfig
	name string
	rng  *rand.Rand

	ledger    int64 // the topic's first ledger
	entries   []*modelEntry
	low       int // the first entry that is not finished
	next      int // the entry that the broker reads next
	part      *modelPart
	permits   int
	other     *modelOther // another consumer, if there is one
	inactive  bool        // other is the active consumer
	disturbed time.Time   // when the last rewind or disconnection was
	top       int         // the last entry that was sent after disturbed and has left the consumer's queue
	requests  int
	acked     func(*modelEntry, int) // called for each acknowledged message

	// unrepeated is our consumer's last cumulative acknowledgement before another consumer got the partition. If it was
	// lost, the other consumer may move the cursor back, and our consumer does not repeat it.
	unrepeated *modelPlace
}

// modelOwner is the consumer that has an unacknowledged entry.
type modelOwner uint8

const (
	nobody modelOwner = iota
	ours
	others
)

type modelEntry struct {
	sub           *modelSub
	pos           int
	ledger, entry int64
	size          int
	batch         bool
	published     time.Time
	chances       int
	modelProgress
}

// modelProgress is the subscription's state of an entry.
type modelProgress struct {
	acked    []bool // of each message
	done     bool
	doneAt   time.Time
	skipped  bool // a reset of the cursor skipped it
	owner    modelOwner
	again    bool // on Shared: the broker will send it again
	why      string
	count    uint32
	most     uint32    // the highest count that the broker sent
	lost     time.Time // when our consumer lost it and did not know that
	asked    time.Time // when it was last requested
	sent     time.Time // when it was last sent to our consumer
	otherGot bool      // another consumer got it since it was last sent to ours
	otherDid bool      // another consumer acknowledged it
	taken    time.Time // when a copy last left our consumer's queue
	late     bool      // it was requested over a new connection, which sends it in any case: one more copy is coming
	unknown  []bool    // messages whose requests the Consumer may have given up
	mixed    bool      // partly settled at a reset of the cursor: earlier acknowledgements still count
}

func (s *modelSub) rewinds() bool {
	return s.cfg.Kind == pulsar.Exclusive || s.cfg.Kind == pulsar.Failover
}

const modelLedger = 40 // entries

func (s *modelSub) publish(size int, batch bool) {
	n := len(s.entries)
	s.entries = append(s.entries, &modelEntry{sub: s, pos: n, ledger: s.ledger + int64(n/modelLedger), entry: int64(n % modelLedger),
		size: size, batch: batch, published: time.Now(),
		modelProgress: modelProgress{acked: make([]bool, size), why: "for the first time"}})
	s.dispatch()
}

// open returns the number of messages in unfinished entries.
func (s *modelSub) open() (n int) {
	for _, e := range s.entries[s.low:] {
		if !e.done {
			n += e.size
		}
	}
	return n
}

// first returns the entry that the broker sends next.
func (s *modelSub) first() *modelEntry {
	if !s.rewinds() {
		for _, e := range s.entries[s.low:s.next] {
			if e.again && !e.done {
				return e
			}
		}
	}
	for s.next < len(s.entries) {
		if e := s.entries[s.next]; !e.done && e.owner != others {
			return e
		}
		s.next++
	}
	return nil
}

func (s *modelSub) dispatch() {
	for e := s.first(); e != nil; e = s.first() {
		can := s.part != nil && s.permits > 0 && !s.inactive
		otherCan := s.other != nil && s.other.has < modelOtherQueue && (s.inactive || !s.rewinds())
		if s.other != nil && s.cfg.Kind == pulsar.KeyShared { // a key's messages are sent only to its consumer
			if e.pos*7%3 == 0 {
				can = false
			} else {
				otherCan = false
			}
		}
		switch {
		case can && otherCan && s.rng.IntN(2) == 0, can && !otherCan:
			s.taken(e)
			s.send(e)
		case otherCan:
			s.taken(e)
			s.give(e)
		default:
			return
		}
	}
}

func (s *modelSub) taken(e *modelEntry) {
	e.again = false
	if e.pos >= s.next {
		s.next = e.pos + 1
	}
}

// givenUp records that the Consumer may have stopped requesting an entry.
func (e *modelEntry) givenUp() { e.unknown = slices.Repeat([]bool{true}, e.size) }

func (s *modelSub) send(e *modelEntry) {
	d := &modelDelivery{entry: e, why: e.why, sent: time.Now(), count: e.count, otherGot: e.otherGot,
		left: make([]bool, e.size), filtered: make([]bool, e.size)}
	e.owner, e.lost, e.otherGot = ours, time.Time{}, false
	if s.rewinds() {
		d.count = 0
	}
	for i := range e.acked {
		if s.cfg.BrokerIndexAcks && e.acked[i] {
			d.filtered[i] = true
		} else {
			s.permits--
		}
		d.left[i] = true
	}
	if !s.rewinds() && e.asked.After(e.sent) && time.Since(e.asked) > modelPatience {
		e.givenUp()
	}
	e.sent = time.Now()
	e.most = max(e.most, d.count)
	p := s.part
	p.fromBroker(func() { p.arrive(d) })
}

// finish records that an entry is acknowledged.
func (s *modelSub) finish(e *modelEntry) {
	if e.done {
		return
	}
	e.done, e.doneAt, e.owner, e.again = true, time.Now(), nobody, false
	for i := range e.acked {
		e.acked[i] = true
	}
	for s.low < len(s.entries) && s.entries[s.low].done {
		s.low++
	}
}

// modelAck acknowledges an entry, except the messages in left.
type modelAck struct {
	entry *modelEntry
	left  []bool // unacknowledged messages; nil for none
}

// ack executes an acknowledgement that our consumer sent.
func (s *modelSub) ack(a modelAck) {
	e := a.entry
	if e.done || a.left != nil && slices.Contains(a.left, true) && !s.cfg.BrokerIndexAcks {
		return
	}
	e.count = 0
	for i := range e.acked {
		if (a.left == nil || !a.left[i]) && !e.acked[i] {
			e.acked[i] = true
			s.acked(e, i)
		}
	}
	if !slices.Contains(e.acked, false) {
		s.finish(e)
	}
}

// ackUpTo executes a cumulative acknowledgement.
func (s *modelSub) ackUpTo(a modelAck) {
	for _, e := range s.entries[min(s.low, a.entry.pos):a.entry.pos] {
		s.ack(modelAck{entry: e})
	}
	s.ack(a)
}
