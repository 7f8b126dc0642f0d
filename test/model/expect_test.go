package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// modelKey names a message. Ledgers are shared by a topic and its shadows.
type modelKey struct {
	topic         string
	ledger, entry int64
	index         int32
}

// modelExpected is what the application may expect of one message.
type modelExpected struct {
	key   modelKey
	entry *modelEntry
	stand modelStand
	msg   pulsar.Message   // as it was handed out last
	old   []pulsar.Message // as it was before
	copy  *modelCopy       // that was handed out last
	at    time.Time        // when

	waits    time.Time // since when, if it waits
	due      time.Time // and when it may come
	deadline time.Time // if the application has it and there is an ack timeout
	count    uint32    // of the next hand-over
	slack    uint32    // by which that may be more
	settling int       // calls that are under way
	nacking  bool      // one is under way
	how      string    // it was settled
	settled  time.Time
	had      int // how many copies the Consumer had taken by then
	takenBy  int // and the application

	refused bool // a cumulative acknowledgement of it failed

	unsure bool // a call to settle it failed, and the broker may have the acknowledgement nevertheless
	either bool // it was settled shortly before an operator's reset, which may bring it back or not
	loose  bool // a callback panicked, so that nobody knows when it is due
}

type modelStand uint8

const (
	modelFresh modelStand = iota
	modelHeld
	modelWaits
	modelSettled
)

func (s modelStand) String() string { return [...]string{"fresh", "held", "waiting", "settled"}[s] }

func (m *modelExpected) String() string {
	if m == nil {
		return "unknown"
	}
	s := fmt.Sprintf("%v.%d %v", m.entry, m.key.index, m.stand)
	switch m.stand {
	case modelWaits:
		s += fmt.Sprintf(", due %v ago", time.Since(m.due).Round(time.Millisecond))
	case modelSettled:
		s += fmt.Sprintf(" by %v %v ago", m.how, time.Since(m.settled).Round(time.Microsecond))
	}
	if m.settling > 0 || m.unsure || m.either || m.loose {
		s += fmt.Sprintf(", settling %d, unsure %t, either %t, loose %t", m.settling, m.unsure, m.either, m.loose)
	}
	return s
}

func keyOf(e *modelEntry, i int) modelKey { return modelKey{e.sub.name, e.ledger, e.entry, int32(i)} }

// of returns what is expected of a message. The caller holds r.mu.
func (r *modelRun) of(e *modelEntry, i int) *modelExpected {
	key := keyOf(e, i)
	m := r.known[key]
	if m == nil {
		m = &modelExpected{key: key, entry: e}
		r.known[key] = m
		r.order = append(r.order, m)
	}
	return m
}

// forget makes a message a new one. The caller holds r.mu.
func (r *modelRun) forget(m *modelExpected) {
	delete(r.known, m.key)
	r.order = slices.DeleteFunc(r.order, func(o *modelExpected) bool { return o == m })
}

// expire notes that the application has had m for too long. The caller holds r.mu.
func (r *modelRun) expire(m *modelExpected) {
	if m.stand == modelHeld && r.cfg.Timeout > 0 && !time.Now().Before(m.deadline) {
		m.stand, m.waits, m.due = modelWaits, m.deadline, m.deadline
		m.count++
	}
}

// modelPatience is how long the Consumer waits at least for what it asked for, until it takes it for another
// consumer's.
const modelPatience = 6 * time.Second

// modelOrigin is what the broker knows of a copy that was handed out.
type modelOrigin struct {
	copy     *modelCopy
	most     uint32    // the broker's count
	shared   bool      // another consumer had it meanwhile
	another  bool      // another consumer has it, or has acknowledged it
	told     time.Time // when the Consumer could know of that, if no copy has come since
	givenUp  bool      // the Consumer may have forgotten it
	taken    time.Time
	grabbed  time.Time
	epoch    int
	survived bool
}

func (r *modelRun) origin(msg pulsar.Message) modelOrigin {
	serial, err := strconv.Atoi(string(msg.Payload()))
	if err != nil {
		r.w.fail("the payload of %v is %q", msg.ID(), msg.Payload())
		return modelOrigin{}
	}
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	c := r.cons.copies[serial]
	e, p := c.entry, c.part
	o := modelOrigin{copy: c, most: e.most, shared: e.otherGot || c.otherGot, taken: c.taken, grabbed: p.grabbed, epoch: p.epoch}
	o.givenUp = e.unknown != nil && e.unknown[c.index]
	if o.givenUp {
		e.unknown[c.index] = false
	}
	o.another = e.owner == others || e.otherDid
	if o.taken.IsZero() { // the dispatcher has not got round to it yet
		o.taken = time.Now()
	}
	received := c.received
	if received.IsZero() || r.cfg.Given > 0 { // it may just have left a buffer
		received = time.Now()
	}
	if o.another && e.lost.Before(p.doubt) && !e.lost.IsZero() && received.Before(p.doubt) {
		o.told = p.doubt
	}
	o.survived = c.epoch < p.epoch && p.state == live
	return o
}

// handed checks a message that the application has got just now.
// It is loose if a policy panicked meanwhile.
func (r *modelRun) handed(msg pulsar.Message, loose bool) {
	o := r.origin(msg)
	if o.copy == nil {
		return
	}
	c, now := o.copy, time.Now()
	count, heads := r.c.RedeliveryCount(msg), r.heads()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.w.note("takes %v, copy %d, count %d", c, c.serial, count)
	if topic := msg.Topic(); topic != c.part.sub.name || msg.ID().EntryID() != c.EntryID() || msg.ID().BatchIdx() != c.BatchIdx() {
		r.w.fail("the message %v of %v is under the id %v of %v", c, c.part.sub.name, msg.ID(), topic)
	}
	if r.seeking || now.Equal(r.sought) {
		return // nobody knows of which time it is
	}
	if c.sent.Before(r.sought) {
		r.w.fail("a stale message comes after a seek: %v, sent %v before it", c, r.sought.Sub(c.sent))
	}
	m := r.of(c.entry, c.index)
	r.expire(m)
	r.taken++
	r.checkOrder(m)
	r.checkTurn(m, heads)
	if m.stand == modelSettled && r.cfg.Given > 0 && r.taken-m.takenBy <= r.cfg.Given+2 {
		return // it was in the application's channel
	}
	if m.stand == modelSettled && r.cfg.Callbacks && !r.cfg.Chan && r.wasTaken(c, m) {
		return // a callback took its time before Receive returned
	}
	inPart := c.entry.batch && (m.stand == modelSettled && m.copy.epoch < c.epoch || !r.cfg.BrokerIndexAcks)
	// A connection was lost with the acknowledgement, and another consumer had the message since; the broker has had
	// time for it.
	lost := m.stand == modelSettled && o.shared && m.copy.epoch < c.epoch && c.sent.Sub(m.settled) > 4*time.Second
	if m.either || lost || r.mayBeUnsent(m) || m.stand == modelSettled && o.givenUp && (c.sent.Before(m.settled) || inPart) {
		r.forget(m)
		m = r.of(c.entry, c.index)
	}
	switch {
	case m.stand == modelSettled && !now.Equal(m.settled):
		r.w.fail("%v comes again: %v", m, r.because(m, o))
	case m.stand == modelSettled: // both happened at once
		return
	case m.stand == modelHeld && !m.loose:
		r.w.fail("%v is with the application and comes again: %v", m, r.because(m, o))
	case m.stand == modelWaits && now.Before(m.due) && !m.loose: // else it may have timed out before it was nacked, after a minute
		r.w.fail("%v is early by %v", m, m.due.Sub(now))
	}
	r.checkCount(m, o, count)
	if m.stand != modelFresh && o.another {
		r.doubles++
		if o.told.After(m.waits) && now.After(o.told) {
			r.w.fail("%v is handed out although another consumer has it, as the Consumer was told %v ago", m, now.Sub(o.told))
		}
	}
	if m.msg != nil {
		m.old = append(m.old, m.msg)
	}
	m.stand, m.msg, m.copy, m.at, m.count, m.slack, m.loose = modelHeld, msg, c, now, count, 0, loose
	m.deadline = now.Add(r.cfg.Timeout + r.delay(count))
}

// mayBeUnsent reports whether a cumulative acknowledgement may not have reached the broker though the call returned nil.
// After one that failed in the middle of a batch, upstream does not send another one for the entries before the batch.
func (r *modelRun) mayBeUnsent(m *modelExpected) bool {
	return m.stand == modelSettled && m.refused && r.cfg.Batches && !r.cfg.IndexAcks
}

// checkCount checks the redelivery count: one more than the last or, of what is no batch, the broker's if that is more.
func (r *modelRun) checkCount(m *modelExpected, o modelOrigin, count uint32) {
	least, most := m.count, m.count+m.slack
	if m.stand == modelHeld { // and a callback panicked, so that nobody knows whether it timed out
		least, most = m.count, m.count+1
	}
	if m.stand == modelFresh || !m.entry.batch {
		most = max(most, o.most)
	}
	if o.shared || o.another || o.givenUp {
		least, most = 0, max(most, o.most)
	}
	if count < least || count > most {
		r.w.fail("%v has a count of %d, want %d to %d", m, count, least, most)
	}
}

// acked is told of every message that the broker takes an acknowledgement of, under the world's lock.
func (r *modelRun) acked(e *modelEntry, i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.known[keyOf(e, i)]
	if !e.mixed && (m == nil || m.stand != modelSettled && m.settling == 0 && !m.unsure && !m.either) {
		r.w.fail("%v.%d is lost: it was acknowledged, and the application did not settle it: %v", e, i, m)
	}
}

// begin notes that a call to settle messages begins. The caller holds r.mu.
func (r *modelRun) begin(messages ...*modelExpected) {
	r.calls++
	for _, m := range messages {
		m.settling++
	}
}

// ended notes what a call to settle a message came to. The caller holds r.mu.
func (r *modelRun) ended(m *modelExpected, how string, err error) {
	m.settling--
	r.expire(m)
	switch {
	case err != nil:
		r.w.note("%v of %v: %v", how, m, err)
		m.unsure = true
		m.refused = m.refused || strings.HasPrefix(how, "a cumulative")
	case m.stand != modelSettled:
		m.stand, m.how, m.settled, m.had = modelSettled, how, time.Now(), r.cons.had()
		m.takenBy = r.taken
		r.w.note("%v", m)
	}
}
