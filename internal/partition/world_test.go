package partition

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// A world is a Group with its surroundings: a broker that sends entries and takes acknowledgements and requests,
// upstream's queue, which a slow application reads, another consumer, an operator, and time. A world is so small that
// an exploration can play everything that can happen in a few steps.

const (
	tick       = time.Second
	nackDelay  = tick
	retryDelay = 2 * tick
)

// kind describes a world.
type kind struct {
	name            string
	options         Options
	topics          [][]int       // number of messages in each entry of each topic
	depth           int           // steps that the exploration plays
	deepest         int           // 0 for no limit: deeper histories show one of the windows that doc.go lists
	sharedLedgers   bool          // topics share their ledgers, as a shadow topic and its source do
	brokerIndexAcks bool          // the broker keeps batch-index acknowledgements
	window          int           // copies that upstream's queue has room for
	others          bool          // there is another consumer
	resets          bool          // an operator moves the cursor back
	responses       bool          // acknowledgements take time, and may fail
	cumulative      bool          // the application acknowledges cumulatively
	byID            bool          // the application settles by bare id
	snoozes         bool          // the application snoozes messages
	transactions    bool          // the application acknowledges in transactions
	timeout         time.Duration // the ack timeout; 0 for none
	queueCleared    bool          // a lost connection clears upstream's queue
	publishes       bool          // the application publishes a message elsewhere, and acknowledges it after that
	channel         bool          // each message is offered on a channel, and may be withdrawn before the application takes it
	reclaims        bool          // the application returns messages that another consumer may have
	givesBack       bool          // the application gives everything back, and subscribes again
	redelivers      bool          // the application calls RedeliverNow
	wholeAcks       bool          // the application acknowledges whole batches by id
	expires         bool          // the broker deletes messages that are older than the TTL
	retries         bool          // messages are retries, which the broker sends before they are due
	unannounced     bool          // upstream cannot decrypt the first entry, so it does not announce it
	deaf            bool          // as after Wrap, nothing reports lost connections or sent copies
	chunks          bool          // messages are in chunks: upstream forgets a delivery that it requests, and ignores acknowledgements of it
}

// brokerEntry is an entry as the broker knows it.
type brokerEntry struct {
	acked   []bool
	leftOut []bool // messages that the next delivery leaves out: acknowledged one by one, and not kept by the broker
	owner   owner
	count   uint32 // the broker's redelivery count
}

type owner uint8

const (
	nobody owner = iota // the broker has not sent the entry, or sends it again
	ours
	theirs
)

func (e *brokerEntry) isAcked() bool { return !slices.Contains(e.acked, false) }

// sending is one delivery of an entry. Upstream counts which of its messages are acknowledged.
type sending struct {
	topic, entry int
	unacked      []bool // messages that are not acknowledged yet
	stale        bool   // a connection was lost since, or the entry was requested before
	requested    bool   // a request for the entry was on its way when the broker sent it
	forgotten    bool   // upstream has forgotten the delivery
}

// object is the id of one message of a sending.
type object struct {
	of    *sending
	index int
	count uint32 // the broker's redelivery count
}

// command is a request or an acknowledgement that the client sends.
type command struct {
	request      bool
	topic, entry int
	index        int // -1 for the whole entry
	op           int // number of the operation that the command belongs to, from 1; 0 for none
}

// appMessage is a message as the application knows it.
type appMessage struct {
	held           bool          // the application works on it
	everHeld       bool          // the application had it at least once
	settled        bool          // its acknowledgement has succeeded
	mayReturn      bool          // it may be handed out although it was settled: an operator moved the cursor back
	mustReturn     bool          // it must be handed out although it was settled
	acking         bool          // an acknowledgement is under way
	uncounted      bool          // the next hand-over does not raise the count
	inTxn          bool          // a transaction acknowledges it
	countsAnew     bool          // its earlier hand-overs may have been forgotten: the count begins again
	settledAt      time.Duration // when it was settled
	notUntil       time.Duration // it must not come before this time
	deadline       time.Duration // when its ack timeout is over; 0 for none
	count          uint32        // redelivery count of its last hand-over
	brokerCount    uint32        // largest count that came with a copy
	hand           uint64        // number of its last hand-over
	earlierHand    uint64        // number of a hand-over before the last, if hasEarlierHand
	hasEarlierHand bool
	ackedElsewhere bool // another consumer acknowledged it
	doubtful       bool // a request was on its way when the broker sent it last, so the broker may send it elsewhere too
	offered        bool // it is offered on the channel
}

type worldTopic struct {
	lost     bool // its connection was lost, and the broker has sent nothing since; only if queueCleared
	entries  []*brokerEntry
	messages [][]*appMessage // by entry and index
	inactive bool            // another consumer is the active one
}

type world struct {
	*kind
	g      group
	now    time.Duration
	topics []*worldTopic
	queue  []*object // upstream's queue
	pipe   []command // commands on their way to the broker
	ops    []*worldOp
	fault  string    // the first promise that was broken; "" for none
	last   place     // of the newest message that was handed out for the first time
	reset  bool      // an operator moved a cursor back
	waits  bool      // the application waits for a message
	lost   bool      // a connection was lost
	offer  *Delivery // offered on the channel; nil if none
}

// worldOp is an acknowledgement under way.
type worldOp struct {
	ack    Ack
	m      *appMessage
	inPipe bool // its command has not reached the broker
	topic  int
	entry  int
}

func newWorld(k *kind) *world {
	o := k.options
	o.AckedAfter = tick
	w := &world{kind: k, g: group{New(o)}}
	for _, sizes := range k.topics {
		t := &worldTopic{}
		for _, size := range sizes {
			t.entries = append(t.entries, &brokerEntry{acked: make([]bool, size), leftOut: make([]bool, size)})
			messages := make([]*appMessage, size)
			for i := range messages {
				messages[i] = &appMessage{}
				if k.retries {
					messages[i].notUntil = retryDelay
				}
			}
			t.messages = append(t.messages, messages)
		}
		w.topics = append(w.topics, t)
	}
	return w
}

func (w *world) fail(format string, args ...any) {
	if w.fault == "" {
		w.fault = fmt.Sprintf(format, args...)
	}
}

func topicName(t int) string { return string(rune('A' + t)) }

func (w *world) id(t, e, i int) ID {
	ledger := int64(t + 1)
	if w.sharedLedgers {
		ledger = 1
	}
	return ID{topicName(t), ledger, int64(e), int32(i)}
}

func (w *world) at(id ID) (t, e, i int) { return int(id.Topic[0] - 'A'), int(id.Entry), int(id.Index) }

// step is an event and the message that it is about.
type step struct {
	event event
	topic uint8
	entry uint8
	index uint8
}

type event uint8

const (
	receive event = iota
	send
	flush
	pass // a tick of time
	ack
	nack
	nackOld
	snooze
	ackUpto
	begin     // an acknowledgement
	endDone   // an acknowledgement succeeds
	endFailed // an acknowledgement fails
	beginTxn
	abort
	lose
	loseAll    // as lose, and the commands on their way to the broker are lost
	late       // upstream reads a copy from the lost connection, and then clears its queue
	swallow    // upstream drops the next copy of its new connection
	otherTakes // the other consumer gets an entry
	otherAcks  // the other consumer acknowledges what it has
	otherDies  // the broker takes back what the other consumer has
	moveCursor
	deactivate
	activate
	activateLate // the broker begins to send before it reports the active consumer
	takeOffer
	withdraw
	reclaim
	giveBack
	redeliverNow
	ackWhole
	expire
	events
)

var eventNames = [events]string{"receive", "send", "flush", "pass", "ack", "nack", "nackOld", "snooze", "ackUpto", "begin", "endDone", "endFailed",
	"beginTxn", "abort", "lose", "loseAll", "late", "swallow", "otherTakes", "otherAcks", "otherDies", "moveCursor", "deactivate", "activate", "activateLate",
	"takeOffer", "withdraw", "reclaim", "giveBack", "redeliverNow", "ackWhole", "expire"}

func (s step) String() string {
	return fmt.Sprintf("%s %c%d.%d", eventNames[s.event], 'A'+s.topic, s.entry, s.index)
}

// steps returns the steps that are possible now.
func (w *world) steps() (all []step) {
	add := func(e event, at ...int) {
		s := step{event: e}
		for i, v := range at {
			switch i {
			case 0:
				s.topic = uint8(v)
			case 1:
				s.entry = uint8(v)
			case 2:
				s.index = uint8(v)
			}
		}
		all = append(all, s)
	}
	if w.offer == nil && (len(w.queue) > 0 || w.g.Stats().Ready > 0 || !w.waits) {
		add(receive)
	}
	if len(w.pipe) > 0 {
		add(flush)
	}
	add(pass)
	for t, topic := range w.topics {
		if w.next(t) >= 0 {
			if len(w.queue) < w.window && !topic.inactive {
				add(send, t)
			}
			if w.others && (!w.options.rewinds() || topic.inactive) {
				add(otherTakes, t)
			}
		}
		add(lose, t)
		if topic.lost && w.next(t) >= 0 && !w.deaf {
			add(late, t)
			if !topic.inactive && !w.isUnannounced(w.next(t)) {
				add(swallow, t)
			}
		}
		if len(w.pipe) > 0 {
			add(loseAll, t)
		}
		if w.options.Kind == Failover {
			if topic.inactive {
				add(activate, t)
				if w.next(t) >= 0 && len(w.queue) < w.window {
					add(activateLate, t)
				}
			} else {
				add(deactivate, t)
			}
		}
		if w.resets && !w.reset {
			add(moveCursor, t)
		}
		if slices.ContainsFunc(topic.entries, func(e *brokerEntry) bool { return e.owner == theirs }) {
			add(otherAcks, t)
			if !topic.inactive {
				add(otherDies, t)
			}
		}
		w.applicationSteps(t, add)
	}
	w.rareSteps(add)
	for i, op := range w.ops {
		if !op.inPipe {
			add(endDone, 0, 0, i)
		}
		add(endFailed, 0, 0, i)
	}
	return all
}

func (w *world) applicationSteps(t int, add func(event, ...int)) {
	for e, messages := range w.topics[t].messages {
		for i, m := range messages {
			if m.held {
				add(nack, t, e, i)
				if w.snoozes {
					add(snooze, t, e, i)
				}
				if w.cumulative {
					add(ackUpto, t, e, i)
				}
			}
			if m.everHeld && !m.settled && !m.acking && !m.inTxn {
				if w.responses {
					if len(w.ops) < 2 {
						add(begin, t, e, i)
					}
				} else {
					add(ack, t, e, i)
				}
				if w.transactions {
					add(beginTxn, t, e, i)
				}
			}
			if m.inTxn {
				add(abort, t, e, i)
			}
			if m.hasEarlierHand {
				add(nackOld, t, e, i)
			}
		}
	}
}

// next returns the entry that the broker sends next, or -1.
func (w *world) next(t int) int {
	for i, e := range w.topics[t].entries {
		if e.owner == nobody && !e.isAcked() && !w.isPending(t, i) {
			return i
		}
	}
	return -1
}

func (w *world) isPending(t, e int) bool {
	return slices.ContainsFunc(w.topics[t].messages[e], func(m *appMessage) bool { return m.inTxn })
}

func (w *world) do(s step) {
	t, e, i := int(s.topic), int(s.entry), int(s.index)
	topic := w.topics[t]
	var m *appMessage
	if s.event != endDone && s.event != endFailed {
		m = topic.messages[e][min(i, len(topic.messages[e])-1)]
	}
	switch s.event {
	case receive:
		w.receive()
	case send:
		w.send(t, w.next(t))
	case flush:
		w.flush()
	case pass:
		w.pass(tick)
	case ack:
		w.begin(t, e, i)
		w.end(len(w.ops)-1, Done)
	case begin:
		w.begin(t, e, i)
	case endDone:
		w.end(i, Done)
	case endFailed:
		w.end(i, Failed)
	case nack, snooze:
		w.nack(t, e, i, m.hand, s.event == snooze)
	case nackOld:
		m.hasEarlierHand = false
		if _, changed, _ := w.g.Nack(w.now, Failure{ID: w.id(t, e, i), Hand: m.earlierHand, Delay: nackDelay}); changed {
			w.fail("a nack of an earlier hand-over took effect")
		}
	case ackUpto:
		w.ackUpto(t, e, i)
	case beginTxn:
		w.beginTxn(t, e, i)
	case abort:
		m.inTxn = false
		topic.entries[e].owner = nobody
	case lose, loseAll:
		w.lose(t, s.event == loseAll)
	case late:
		w.g.Sent(w.now, w.id(t, w.next(t), 0), t, &object{of: &sending{topic: t, entry: w.next(t), unacked: []bool{true}}})
		topic.lost = false
	case swallow:
		kept := len(w.queue)
		w.send(t, w.next(t))
		w.queue = w.queue[:kept]
	case otherTakes:
		topic.entries[w.next(t)].owner = theirs
	case otherAcks:
		for x, entry := range topic.entries {
			if entry.owner == theirs {
				entry.owner = nobody
				for i := range entry.acked {
					entry.acked[i] = true
					topic.messages[x][i].ackedElsewhere = true
				}
			}
		}
	case otherDies:
		w.otherDies(t)
	case moveCursor:
		w.moveCursor(t)
	case deactivate:
		w.deactivate(t)
	case activate:
		w.activate(t)
	case activateLate:
		w.otherDies(t)
		w.send(t, w.next(t))
		w.topics[t].inactive = false
		w.g.Activate(w.now, topicName(t), t, true)
	default:
		w.doRare(s)
	}
	w.withdrawStale()
	w.act(w.g.Advance(w.now))
	w.withdrawStale()
}

// act carries out the Group's decisions.
func (w *world) act(d Decisions) {
	for _, r := range d.Requests {
		o := r.ID.(*object)
		if o.of.forgotten {
			continue
		}
		o.of.forgotten = w.chunks
		w.markRequested(o.of)
		w.pipe = append(w.pipe, command{request: true, topic: o.of.topic, entry: o.of.entry})
	}
	for _, given := range d.DeadLetters {
		t, e, i := w.at(given.ID)
		m := w.topics[t].messages[e][i]
		if m.deadline == 0 || w.now < m.deadline {
			w.fail("became a dead letter before its ack timeout was over")
		}
		if _, ok, _ := w.g.Nack(w.now, Failure{ID: given.ID, Hand: given.Hand, Delay: nackDelay}); !ok {
			w.fail("became a dead letter, and cannot be nacked")
		}
		m.notUntil = w.now + nackDelay
		w.timesOut(m)
	}
	for _, over := range d.TimedOut {
		t, e, i := w.at(over.ID)
		m := w.topics[t].messages[e][i]
		if m.deadline == 0 || w.now < m.deadline {
			w.fail("timed out early")
		}
		w.timesOut(m)
	}
}

// markRequested marks the copies of an entry in the queue: once the entry is requested, another consumer may get it.
// The Group knows these copies only after a loss.
func (w *world) markRequested(s *sending) {
	if p := w.g.partitions[topicName(s.topic)]; p.calmEpoch != w.g.epoch {
		return
	}
	for _, o := range w.queue {
		if o.of.topic == s.topic && o.of.entry == s.entry {
			o.of.stale = true
		}
	}
}

func (w *world) timesOut(m *appMessage) {
	m.held, m.hasEarlierHand, m.earlierHand, m.deadline = false, true, m.hand, 0
}

// send lets the broker send an entry. It leaves acknowledged messages out if broker and client acknowledge single
// messages of a batch.
func (w *world) send(t, e int) {
	entry := w.topics[t].entries[e]
	entry.owner, w.topics[t].lost = ours, false
	if w.waits { // the application gets the message
		w.waits = false
		w.g.ReceiverContinues(w.now)
	}
	s := &sending{topic: t, entry: e, unacked: slices.Repeat([]bool{true}, len(entry.acked))}
	s.requested = slices.ContainsFunc(w.pipe, func(c command) bool { return c.request && c.topic == t && c.entry == e })
	s.stale = s.requested
	for i, acked := range entry.acked {
		if (acked && w.brokerIndexAcks || entry.leftOut[i]) && w.options.IndexAcks == KeptIndexAcks {
			continue
		}
		w.topics[t].messages[e][i].doubtful = s.requested
		o := &object{s, i, entry.count}
		w.queue = append(w.queue, o)
		if !w.deaf && !w.isUnannounced(e) {
			w.g.Sent(w.now, w.id(t, e, i), t, o)
		}
	}
}

// receive imitates Consumer.Receive.
func (w *world) receive() {
	if d, ok := w.g.Take(w.now, len(w.queue) > 0); ok {
		w.waits = false
		w.handOver(d)
		return
	}
	if len(w.queue) == 0 {
		w.waits = true
		w.g.ReceiverWaits(w.now)
		return
	}
	w.waits = false
	o := w.queue[0]
	w.queue = w.queue[1:]
	t, e := o.of.topic, o.of.entry
	m := w.topics[t].messages[e][o.index]
	m.brokerCount = max(m.brokerCount, o.count)
	c := Copy{ID: w.id(t, e, o.index), Source: t, Object: o, Body: o, Total: int32(len(o.of.unacked)), Count: o.count, Size: 1,
		Unannounced: w.isUnannounced(e)}
	if w.retries {
		c.Wait = retryDelay - w.now
	}
	a := w.g.Arrive(w.now, c)
	switch a.Verdict {
	case Deliver:
		if !o.of.stale && !w.options.rewinds() && !w.deaf && w.topics[t].entries[e].owner == theirs {
			w.fail("%v handed out after it was requested: another consumer has it", a.ID)
		}
		if m.countsAnew = !m.everHeld || m.settled; m.countsAnew {
			m.brokerCount = o.count
		}
		w.handOver(a.Delivery)
	case AckAgain:
		w.ackObject(a.Again.Object.(*object), a.Again.Whole, 0)
	case Buffered, Dropped:
	}
}

// handOver checks a hand-over, and gives the message to the application.
func (w *world) handOver(d Delivery) {
	t, e, i := w.at(d.ID)
	m := w.topics[t].messages[e][i]
	switch {
	case m.settled && !m.mayReturn:
		w.fail("%v handed out after it was settled", d.ID)
	case m.acking:
		w.fail("%v handed out while it is acknowledged", d.ID)
	case w.now < m.notUntil:
		w.fail("%v handed out %v early", d.ID, m.notUntil-w.now)
	case m.held, m.offered:
		w.fail("%v handed out twice", d.ID)
	case d.FromMemory && !w.deaf && !m.doubtful && (m.ackedElsewhere || w.topics[t].entries[e].owner == theirs):
		w.fail("%v handed out from memory, and another consumer has it", d.ID)
	}
	least, most := uint32(0), m.brokerCount // the broker counts requests that no hand-over followed
	if !m.countsAnew && m.everHeld {
		least = m.count
		if !m.uncounted {
			least++
		}
		most = least
		if len(w.topics[t].messages[e]) == 1 {
			most = max(least, m.brokerCount)
		}
	}
	if (d.Count < least || d.Count > most) && !m.mayReturn {
		w.fail("%v has redelivery count %d, want %d to %d", d.ID, d.Count, least, most)
	}
	if d.Body == nil {
		w.fail("%v handed out without a body", d.ID)
	}
	if at := (place{d.ID.position(), d.ID.Index}); !m.everHeld && !w.reset && w.options.rewinds() && len(w.topics) == 1 {
		if at.before(w.last) {
			w.fail("%v handed out after a later one", d.ID)
		}
		w.last = at
	}
	old := *m
	*m = appMessage{held: true, everHeld: true, count: d.Count, brokerCount: m.brokerCount, hand: d.Hand, ackedElsewhere: m.ackedElsewhere,
		doubtful: m.doubtful, hasEarlierHand: old.hasEarlierHand, earlierHand: old.earlierHand}
	if w.channel {
		m.held, m.everHeld, m.offered = false, old.everHeld, true
		w.offer = &d
		return
	}
	if w.timeout > 0 {
		w.g.StartTimeout(w.now, d.ID, d.Hand, w.timeout)
		m.deadline = w.now + w.timeout
	}
}

func (w *world) nack(t, e, i int, hand uint64, snoozed bool) {
	m := w.topics[t].messages[e][i]
	_, changed, err := w.g.Nack(w.now, Failure{ID: w.appID(t, e, i), Hand: hand, Delay: nackDelay, Uncounted: snoozed})
	if err != nil || !changed {
		if !(w.byID && errors.Is(err, ErrAmbiguous)) {
			w.fail("a nack had no effect: %v", err)
		}
		return
	}
	m.held, m.notUntil, m.deadline, m.uncounted = false, w.now+nackDelay, 0, snoozed
}

// appID is the id by which the application settles.
func (w *world) appID(t, e, i int) ID {
	id := w.id(t, e, i)
	if w.byID {
		id.Topic = ""
	}
	return id
}

// begin begins an acknowledgement or, if w.publishes, a publication.
func (w *world) begin(t, e, i int) {
	m := w.topics[t].messages[e][i]
	a, err := w.g.BeginAck(w.appID(t, e, i))
	op := &worldOp{ack: a, m: m, topic: t, entry: e}
	switch {
	case err != nil:
		if !w.byID || !errors.Is(err, ErrAmbiguous) {
			w.fail("%v", err)
		}
		op.m = nil
	case a.Object == nil:
		w.fail("BeginAck does not find an unsettled message (late: %v)", a.Late)
		op.m = nil
	default:
		m.acking = true
		if w.publishes {
			break
		}
		op.inPipe = w.ackObject(a.Object.(*object), a.Whole, len(w.ops)+1)
	}
	w.ops = append(w.ops, op)
}

// end ends an operation, and corrects the numbers of the later ones.
func (w *world) end(i int, outcome Outcome) {
	op := w.ops[i]
	w.ops = slices.Delete(w.ops, i, i+1)
	for c := range w.pipe {
		switch at := w.pipe[c].op; {
		case at == i+1:
			w.pipe[c].op = 0
		case at > i+1:
			w.pipe[c].op--
		}
	}
	if op.m == nil {
		return
	}
	op.m.acking = false
	if w.publishes && outcome == Done {
		w.ackObject(op.ack.Object.(*object), op.ack.Whole, 0)
	}
	if again := w.g.EndAck(w.now, &op.ack, outcome); again != nil {
		w.ackObject(again.Object.(*object), again.Whole, 0)
	}
	if outcome == Done {
		w.settle(op.m)
	}
}

func (w *world) settle(m *appMessage) {
	*m = appMessage{everHeld: true, settled: true, settledAt: w.now, count: m.count, brokerCount: m.brokerCount, hand: m.hand,
		earlierHand: m.earlierHand}
}

// ackObject acknowledges a message as upstream does, and reports whether upstream sends a command to the broker.
func (w *world) ackObject(o *object, whole bool, op int) bool {
	if o.of.forgotten {
		return false
	}
	o.of.unacked[o.index] = false
	index := o.index
	switch {
	case whole || !slices.Contains(o.of.unacked, true):
		index = -1
	case w.options.IndexAcks != KeptIndexAcks:
		return false
	}
	w.pipe = append(w.pipe, command{topic: o.of.topic, entry: o.of.entry, index: index, op: op})
	return true
}

// isUnannounced reports whether upstream does not announce an entry.
func (w *world) isUnannounced(entry int) bool { return w.unannounced && entry == 0 }

func (w *world) ackUpto(t, e, i int) {
	id := w.id(t, e, i)
	d, _ := w.g.Upto(id)
	o := d.Object.(*object)
	for x := 0; x <= o.index; x++ {
		o.of.unacked[x] = false
	}
	through := e - 1
	if !slices.Contains(o.of.unacked, true) {
		through = e
	}
	for x := 0; x <= through; x++ {
		w.pipe = append(w.pipe, command{topic: t, entry: x, index: -1})
	}
	if again, _ := w.g.SettleUpto(w.now, id, nil); again != nil {
		w.ackObject(again.Object.(*object), again.Whole, 0)
	}
	for x, messages := range w.topics[t].messages[:e+1] {
		for y, m := range messages {
			if m.everHeld && (x < e || y <= i) {
				w.settle(m)
			}
		}
	}
}

func (w *world) beginTxn(t, e, i int) {
	m := w.topics[t].messages[e][i]
	a, _ := w.g.BeginAck(w.id(t, e, i))
	w.g.EndAck(w.now, &a, Undecided)
	m.inTxn, m.held, m.deadline = true, false, 0
	for _, o := range w.queue { // a copy that was sent before looks like the abort of the transaction
		if o.of.topic == t && o.of.entry == e {
			o.of.stale, m.doubtful = true, true
		}
	}
}

// flush delivers all commands to the broker.
func (w *world) flush() {
	for _, c := range w.pipe {
		w.take(c)
	}
	w.pipe = nil
}

// take lets the broker carry out a command.
func (w *world) take(c command) {
	e := w.topics[c.topic].entries[c.entry]
	if c.op > 0 {
		w.ops[c.op-1].inPipe = false
	}
	switch {
	case c.request && w.topics[c.topic].inactive:
	case c.request && w.options.rewinds():
		w.takeBack(c.topic)
	case c.request && e.owner == ours:
		w.topics[c.topic].entries[c.entry].owner = nobody
		e.count++
	case c.request:
	case c.index < 0:
		for i := range e.acked {
			e.acked[i] = true
		}
		e.owner = nobody
	case w.brokerIndexAcks:
		e.acked[c.index] = true
		if e.count = 0; e.isAcked() {
			e.owner = nobody
		}
	default: // the broker leaves the message out of the next delivery, and still waits for the batch
		e.leftOut[c.index] = true
	}
}

// pass lets time pass. All commands reach the broker.
func (w *world) pass(d time.Duration) {
	w.flush()
	w.now += d
	if w.waits && !slices.ContainsFunc(w.topics, func(t *worldTopic) bool { return t.lost }) {
		w.g.Connected()
	}
}

// lose ends the connection of a topic: the broker sends everything again that is not acknowledged. Copies in upstream's
// queue are still read, unless queueCleared is set. If all is set, the commands on their way are lost.
func (w *world) lose(t int, all bool) {
	if all {
		// an operation whose command is lost stays inPipe, so it can only fail
		w.pipe = slices.DeleteFunc(w.pipe, func(c command) bool { return c.topic == t })
	}
	w.takeBack(t)
	if w.queueCleared {
		w.queue = slices.DeleteFunc(w.queue, func(o *object) bool { return o.of.topic == t })
		w.topics[t].lost = true
	}
	w.lost = true
	for _, o := range w.queue {
		o.of.stale = true
	}
	if !w.deaf {
		w.g.Lost(w.now)
	}
}

// takeBack lets the broker take back everything that this consumer has not acknowledged.
func (w *world) takeBack(t int) {
	for _, e := range w.topics[t].entries {
		if e.owner == ours {
			e.owner = nobody
		}
	}
}

func (w *world) otherDies(t int) {
	for _, e := range w.topics[t].entries {
		if e.owner == theirs {
			e.owner = nobody
		}
	}
}

func (w *world) moveCursor(t int) {
	w.reset = true
	for i, e := range w.topics[t].entries {
		sure := e.isAcked() && !w.lost && !slices.ContainsFunc(w.topics[t].messages[i], func(m *appMessage) bool { return w.now-m.settledAt <= 3*tick })
		for j, m := range w.topics[t].messages[i] {
			e.acked[j] = false
			m.mayReturn = m.settled
			m.mustReturn = m.settled && sure
		}
		e.owner = nobody
	}
	w.lose(t, true)
}

func (w *world) deactivate(t int) {
	w.takeBack(t)
	w.topics[t].inactive = true
	w.g.Activate(w.now, topicName(t), t, false)
}

// activate makes this consumer the active one. Before the broker rewinds and reports the change, it sends the newest
// message, if upstream's queue has room.
func (w *world) activate(t int) {
	w.otherDies(t)
	entries := w.topics[t].entries
	if newest := len(entries) - 1; !entries[newest].isAcked() && len(w.queue) < w.window {
		w.send(t, newest)
		entries[newest].owner = nobody
	}
	w.topics[t].inactive = false
	w.g.Activate(w.now, topicName(t), t, true)
}
