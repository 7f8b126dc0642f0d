package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// modelKey identifies a message. A topic and its shadows share ledgers, so a key has the topic.
type modelKey struct {
	topic         string
	ledger, entry int64
	index         int32
}

// modelExpected is the expected state of one message.
type modelExpected struct {
	key   modelKey
	entry *modelEntry
	stand modelStand
	msg   pulsar.Message   // the last delivery
	old   []pulsar.Message // earlier deliveries
	copy  *modelCopy       // of the last delivery
	at    time.Time        // when it was last delivered

	waits    time.Time // since when it waits
	due      time.Time // from when it may come
	deadline time.Time // when its ack timeout ends, while the application has it
	count    uint32    // of the next delivery
	slack    uint32    // by how much count may be higher
	settling int       // running calls that settle it
	nacking  bool      // a nack of it is running
	how      string    // which call settled it
	settled  time.Time
	had      int // how many copies the Consumer had taken when it was settled
	takenBy  int // how many messages the application had taken when it was settled

	refused bool // a cumulative acknowledgement that covers it failed

	unsure bool // a call that settles it failed, but the broker may have the acknowledgement
	either bool // it was settled shortly before an operator's reset, so it may come back or not
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
	if m.settling > 0 || m.unsure || m.either {
		s += fmt.Sprintf(", settling %d, unsure %t, either %t", m.settling, m.unsure, m.either)
	}
	return s
}

func keyOf(e *modelEntry, i int) modelKey { return modelKey{e.sub.name, e.ledger, e.entry, int32(i)} }

// of returns the expected state of message i of an entry. The caller holds r.mu.
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

// forget makes the model expect that a message comes as a new one. The caller holds r.mu.
func (r *modelRun) forget(m *modelExpected) {
	delete(r.known, m.key)
	r.order = slices.DeleteFunc(r.order, func(o *modelExpected) bool { return o == m })
}

// expire makes m wait if its ack timeout is over. The caller holds r.mu.
func (r *modelRun) expire(m *modelExpected) {
	if m.stand == modelHeld && r.cfg.Timeout > 0 && !time.Now().Before(m.deadline) {
		m.stand, m.waits, m.due = modelWaits, m.deadline, m.deadline
		m.count++
	}
}

// modelPatience is the shortest time after which the Consumer gives a request up.
const modelPatience = 6 * time.Second

// modelOrigin is the broker's state of a delivered copy.
type modelOrigin struct {
	copy     *modelCopy
	most     uint32    // the broker's highest count
	shared   bool      // another consumer got it before or after this copy was sent
	another  bool      // another consumer has it or has acknowledged it
	notified time.Time // when the Consumer was notified that another may have it; zero if a copy has come since
	givenUp  bool      // the Consumer may have given its request up
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
	if o.taken.IsZero() { // the dispatcher has not recorded it yet
		o.taken = time.Now()
	}
	received := c.received
	if received.IsZero() || r.cfg.Given > 0 { // the copy may have left a buffer just now
		received = time.Now()
	}
	if o.another && e.lost.Before(p.doubt) && !e.lost.IsZero() && received.Before(p.doubt) {
		o.notified = p.doubt
	}
	o.survived = c.epoch < p.epoch && p.state == live
	return o
}

// handed checks a message that the application has just received.
func (r *modelRun) handed(msg pulsar.Message) {
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
		r.w.fail("message %v of %v is delivered with the id %v and the topic %v", c, c.part.sub.name, msg.ID(), topic)
	}
	if r.seeking || now.Equal(r.sought) {
		return // the message may be from before or after the seek
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
		return // the message was in the application's channel
	}
	if m.stand == modelSettled && r.cfg.Callbacks && !r.cfg.Chan && r.wasTaken(c, m) {
		return // a callback may have delayed the return of Receive
	}
	inPart := c.entry.batch && (m.stand == modelSettled && m.copy.epoch < c.epoch || !r.cfg.BrokerIndexAcks)
	// A lost connection swallowed the acknowledgement, and another consumer has had the message since.
	lost := m.stand == modelSettled && o.shared && m.copy.epoch < c.epoch && c.sent.Sub(m.settled) > 4*time.Second
	if m.either || lost || r.mayBeUnsent(m) || m.stand == modelSettled && o.givenUp && (c.sent.Before(m.settled) || inPart) {
		r.forget(m)
		m = r.of(c.entry, c.index)
	}
	switch {
	case m.stand == modelSettled && !now.Equal(m.settled):
		r.w.fail("%v comes again: %v", m, r.because(m, o))
	case m.stand == modelSettled: // it was delivered while a call settled it
		return
	case m.stand == modelHeld:
		r.w.fail("%v is with the application and comes again: %v", m, r.because(m, o))
	case m.stand == modelWaits && now.Before(m.due):
		r.w.fail("%v is early by %v", m, m.due.Sub(now))
	}
	r.checkCount(m, o, count)
	if m.stand != modelFresh && o.another {
		r.doubles++
		if o.notified.After(m.waits) && now.After(o.notified) {
			r.w.fail("%v is handed out although another consumer has it; the Consumer was notified %v ago", m, now.Sub(o.notified))
		}
	}
	if m.msg != nil {
		m.old = append(m.old, m.msg)
	}
	m.stand, m.msg, m.copy, m.at, m.count, m.slack = modelHeld, msg, c, now, count, 0
	m.deadline = now.Add(r.cfg.Timeout + r.delay(count))
}

// mayBeUnsent reports whether m's cumulative acknowledgement may not have reached the broker although the call returned
// nil. Upstream acknowledges the entries before a batch only once for each delivery of the batch. If that fails, the
// next call returns nil and sends nothing.
func (r *modelRun) mayBeUnsent(m *modelExpected) bool {
	return m.stand == modelSettled && m.refused && r.cfg.Batches && !r.cfg.IndexAcks
}

// checkCount checks the redelivery count. It must be one more than the last count. For a first delivery, and for a
// message that is not of a batch, it may also be as high as the broker's count.
func (r *modelRun) checkCount(m *modelExpected, o modelOrigin, count uint32) {
	least, most := m.count, m.count+m.slack
	if m.stand == modelHeld { // a callback panicked, so the message may have timed out or not
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

// acked checks a message that the broker has recorded as acknowledged. The caller holds the world's lock.
func (r *modelRun) acked(e *modelEntry, i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.known[keyOf(e, i)]
	if !e.mixed && (m == nil || m.stand != modelSettled && m.settling == 0 && !m.unsure && !m.either) {
		r.w.fail("%v.%d is lost: it was acknowledged, but the application did not settle it: %v", e, i, m)
	}
}

// begin records that a call that settles messages begins. The caller holds r.mu.
func (r *modelRun) begin(messages ...*modelExpected) {
	r.calls++
	for _, m := range messages {
		m.settling++
	}
}

// ended records the result for a message of a call that settles messages. The caller holds r.mu.
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
