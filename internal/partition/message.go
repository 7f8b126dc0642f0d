package partition

import (
	"cmp"
	"time"
)

// State is where a message is. The table in the package comment says how it changes.
type State uint8

const (
	Unseen  State = iota // no copy of it has come yet, or it was forgotten
	Held                 // the application has it
	Waiting              // its delay is not over
	Ready                // due and in memory, for the next Take
	Asked                // due and requested from the broker
	Settled              // acknowledged
)

const states = int(Settled) + 1

func (s State) String() string {
	return [states]string{"unseen", "held", "waiting", "ready", "asked", "settled"}[s]
}

// message is one message of an entry.
type message struct {
	entry *entry
	index int32
	busy  int32 // calls under way that acknowledge or publish it; it is not handed out until they return

	id          any    // of the newest delivery
	epoch       uint64 // of the newest delivery; 0 if the broker may have sent it to another consumer since
	count       uint32 // redelivery count of the newest hand-over; before the first one, the count that it will have
	brokerCount uint32 // the largest redelivery count that the broker sent, after excess was subtracted
	excess      uint32 // requests that the broker may have counted, but that led to no hand-over
	earlier     uint32 // see Copy.Earlier
	hand        uint64 // number of the newest hand-over; see Delivery
	note        any    // the caller's, from the nack

	heldSince  time.Duration // when the application got it
	heldFor    time.Duration // how long the application had it, if it waits
	waitsSince time.Duration // when its wait began

	state     State
	cause     Cause // why it waits
	delivered bool  // the application had it at least once
	uncounted bool  // the newest hand-over does not count, so the next one does not raise the count
	queued    bool  // it is in Group.ready
	undecided bool  // an open transaction acknowledges it, and may be aborted

	timer       timer         // the ack timeout, the delay, the time to give it back, or undecidedTime
	timeout     time.Duration // how long the ack timeout is; 0 for none
	due         time.Duration // when its delay is over; 0 after the next hand-over
	firstFailed time.Duration // when the application first failed on it; 0 for never

	body any // for a hand-over from memory; nil if it is not kept
	size int64
}

// position is where an entry is in its partition.
type position struct{ ledger, entry int64 }

func (p position) before(q position) bool {
	return p.ledger < q.ledger || p.ledger == q.ledger && p.entry < q.entry
}

// place is where a message is in its partition.
type place struct {
	position
	index int32
}

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.ledger, q.ledger), cmp.Compare(p.entry, q.entry), cmp.Compare(p.index, q.index))
}

func (p place) before(q place) bool { return p.compare(q) < 0 }

func (m *message) place() place { return place{m.entry.at, m.index} }

// entry is the unit that the broker stores and sends: a message, or a batch.
type entry struct {
	partition *Partition
	at        position
	messages  []*message    // by index; nil for those that are not known
	one       [1]*message   // storage of messages, if the entry has only one
	first     message       // storage of messages[0], if the entry has only one
	block     []message     // storage of all messages of a batch
	in        [states]int32 // number of messages in each state
	busy      int32         // calls under way that settle a message of it
	kept      int32         // messages whose bodies are kept
	ack       entryAck
	request   *request // for this entry alone, on Shared and Key_Shared; nil before the first one
	buffer    int64    // bytes of the buffer that the payloads of a batch share
}

// message returns the message with an index. It makes the message if it is not known.
func (e *entry) message(index int32) *message {
	if missing := int(index) + 1 - len(e.messages); missing > 0 {
		e.messages = append(e.messages, make([]*message, missing)...)
	}
	if e.messages[index] == nil {
		m := &e.first
		switch {
		case int(index) < len(e.block):
			m = &e.block[index]
		case index > 0:
			m = &message{}
		}
		*m = message{entry: e, index: index}
		m.timer.Of.message = m
		e.messages[index] = m
		e.in[Unseen]++
		e.partition.in[Unseen]++
	}
	return e.messages[index]
}

// newEntry returns an entry with room for total messages. It reuses the entry that left the table last, if that has the
// right size. Its messages then have old contents until entry.message overwrites them.
func (g *Group) newEntry(p *Partition, at position, total int) *entry {
	e := g.spare
	if e == nil || cap(e.messages) < total || cap(e.messages) > 2*total {
		e = &entry{}
		e.messages = e.one[:]
		if total > 1 {
			e.messages, e.block = make([]*message, total), make([]message, total)
		}
	}
	g.spare = nil
	clear(e.messages)
	*e = entry{partition: p, at: at, messages: e.messages[:total], block: e.block}
	return e
}

// all ranges over the known messages.
func (e *entry) all(yield func(*message) bool) {
	for _, m := range e.messages {
		if m != nil && !yield(m) {
			return
		}
	}
}

// known returns the message with an index, or nil if it is not known.
func (e *entry) known(index int32) *message {
	if int(index) >= len(e.messages) {
		return nil
	}
	return e.messages[index]
}

func (e *entry) isBatch() bool { return e.ack.total > 1 }

// unsettled returns how many known messages are not settled yet.
func (e *entry) unsettled() int32 { return e.in[Held] + e.in[Waiting] + e.in[Ready] + e.in[Asked] }

// settledIndexes returns which messages are settled.
func (e *entry) settledIndexes() (indexes indexSet) {
	for m := range e.all {
		if m.state == Settled {
			indexes = indexes.with(m.index)
		}
	}
	return indexes
}

// isOpen reports whether a message is known and not settled.
func (m *message) isOpen() bool { return m.state != Unseen && m.state != Settled }

// isWith reports whether the application has a message from this hand-over.
func (m *message) isWith(hand uint64) bool {
	return m.state == Held && !m.undecided && (hand == m.hand || hand == AnyHand)
}

// move changes the state of a message. No other code changes it.
func (m *message) move(to State) {
	e := m.entry
	e.in[m.state]--
	e.in[to]++
	p := e.partition
	p.in[m.state]--
	p.in[to]++
	m.state = to
}
