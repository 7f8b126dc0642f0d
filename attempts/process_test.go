package attempts

import (
	"slices"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/partition"
)

// process is a consumer of the world. It uses a Group and a Log as a redelivery.Consumer and a Worker do.
type process struct {
	w          *world
	number     int
	start      time.Duration
	log        *Log
	group      *partition.Group
	queue      []*object // upstream's queue
	pipe       []command // commands on their way to the broker
	waits      bool      // the application waits for a message
	framesRead int       // how many frames of the log it has read
	messages   [][]held  // what the application knows of each message
	known      [][]known // failures in the frames that it has read
	unread     [][]known // failures here whose frames it has not read back
	removedAt  [][]known // what it knew of a message's failures when it settled the message
	hurried    [][]bool  // RedeliverNow ended the delay, and the delay came from a failure in this process
	cutOff     bool      // the log cannot be reached
}

// held is a message as an application knows it.
type held struct {
	has       bool // the application works on it
	inHandler bool
	alone     bool // it crashed other processes: no other such message is handled at the same time
	settled   bool // its Ack returned nil
	had       bool // the application has, or had, the message
	crossed   bool // sending.crossed of its newest copy
	hand      uint64
	count     uint32
}

// sending is one delivery of an entry. Upstream counts which of its messages are acknowledged.
type sending struct {
	entry   int
	unacked []bool // messages that are not acknowledged yet
	stale   bool   // the connection was lost since
	// A request was still on its way when the broker sent the entry. The process takes this sending for the answer.
	// Then the request arrives, and the broker takes the entry back.
	crossed bool
}

// object is the id of one message of a sending.
type object struct {
	of    *sending
	index int
	count uint32
}

// command is a request or the acknowledgement of an entry that a client sends.
type command struct {
	request bool
	entry   int
}

// send sends the next entry to a process.
func (p *process) send() {
	w := p.w
	n := w.next()
	e := w.entries[n]
	e.owner = p.number
	if p.waits { // the application gets the message
		p.waits = false
		p.group.ReceiverContinues(w.now())
	}
	s := &sending{entry: n, unacked: slices.Repeat([]bool{true}, len(e.acked))}
	s.crossed = slices.Contains(p.pipe, command{request: true, entry: n})
	for i := range e.acked {
		o := &object{s, i, e.count}
		p.queue = append(p.queue, o)
		p.group.Sent(w.now(), w.id(n, i), p, o)
	}
}

// receive imitates Consumer.Receive.
func (p *process) receive() {
	w := p.w
	var d partition.Delivery
	if p.group.Take(w.now(), len(p.queue) > 0, &d) {
		p.waits = false
		p.handedOver(d, nil)
		return
	}
	if len(p.queue) == 0 {
		p.waits = true
		p.group.ReceiverWaits(w.now())
		return
	}
	p.waits = false
	o := p.queue[0]
	p.queue = p.queue[1:]
	e := o.of.entry
	cp := partition.Copy{ID: w.id(e, o.index), Source: p, Object: o, Body: o, Total: int32(len(o.of.unacked)),
		Count: o.count, Size: 1}
	p.recall(w.key(e, o.index), &cp)
	p.messages[e][o.index].crossed = o.of.crossed
	switch verdict, again := p.group.Arrive(w.now(), &cp, &d); verdict {
	case partition.Deliver:
		d.Body = o
		p.handedOver(d, o)
	case partition.AckAgain:
		p.acknowledge(again.Object.(*object), again.Whole)
	case partition.Buffered, partition.Dropped:
	}
}

// recall imitates attemptLog.recall.
func (p *process) recall(k Key, cp *partition.Copy) {
	if r, ok := p.log.Arrive(k); ok {
		cp.Tries = r.Count
		cp.Wait = max(cp.Wait, time.Until(r.Due))
	}
}

// isStillDue imitates Consumer.isStillDue.
func (p *process) isStillDue(d *partition.Delivery) bool {
	if !d.Again && !d.FromMemory {
		return true
	}
	r, ok := p.log.Again(p.w.key(int(d.ID.Entry), int(d.ID.Index)))
	if !ok {
		return true
	}
	wait := time.Until(r.Due)
	if !r.Due.After(p.w.began.Add(d.Due)) {
		wait = 0
	}
	if r.Count <= d.Count && wait <= 0 {
		return true
	}
	stillDue := p.group.Recall(p.w.now(), d, r.Count, wait)
	if e, i := int(d.ID.Entry), int(d.ID.Index); !stillDue && r.Begun == 0 && p.hurried[e][i] {
		p.w.fail("RedeliverNow of process %d has no effect on %d.%d", p.number, e, i)
	}
	return stillDue
}

// handedOver checks a hand-over, and handles the message if there is a Worker and a handler may get the message now.
func (p *process) handedOver(d partition.Delivery, o *object) {
	if !p.isStillDue(&d) {
		return
	}
	e, i := int(d.ID.Entry), int(d.ID.Index)
	p.checkHandOver(d, o)
	p.w.entries[e].pasts[i].deliveries++
	p.messages[e][i] = held{has: true, had: true, hand: d.Hand, count: d.Count, crossed: p.messages[e][i].crossed}
	if w := p.w; w.timeout > 0 {
		p.group.StartTimeout(w.now(), d.ID, d.Hand, w.timeout)
	}
	if p.w.limit > 0 && p.mayHandle(e, i) {
		p.handle(e, i)
	}
}

// mayHandle reports whether a handler may get a message. Messages that crashed other processes are handled one at a
// time.
func (p *process) mayHandle(e, i int) bool {
	if p.log.Crashes(p.w.key(e, i)) == 0 {
		return true
	}
	for _, messages := range p.messages {
		if slices.ContainsFunc(messages, func(m held) bool { return m.inHandler && m.alone }) {
			return false
		}
	}
	return true
}

// handle imitates a Worker that gets a message, until its handler is called.
func (p *process) handle(e, i int) {
	w, k, m := p.w, p.w.key(e, i), &p.messages[e][i]
	if int(p.log.Crashes(k)) >= w.limit {
		p.checkDead(e, i)
		p.settleAs(e, i, partition.Moved)
		return
	}
	for _, other := range w.processes {
		if other != nil && other != p && other.messages[e][i].inHandler {
			w.entries[e].pasts[i].sharedHandlers++
			break
		}
	}
	if p.cutOff { // a process that is cut off handles the message without waiting to learn whether it crashed another one
		w.entries[e].pasts[i].sharedHandlers++
	}
	m.alone = p.log.Crashes(k) > 0
	if p.log.IsCareful(k) || m.alone {
		p.log.Begun(k)
		p.publish()
	}
	m.inHandler = true
	p.checkHandler(e, i)
}

// endHandler ends the call of a handler, if there is one.
func (p *process) endHandler(e, i int) {
	m := &p.messages[e][i]
	if m.alone && m.inHandler {
		p.log.Ended(p.w.key(e, i))
		p.publish()
	}
	m.inHandler, m.alone = false, false
}

// ack imitates Consumer.Ack.
func (p *process) ack(e, i int) {
	p.endHandler(e, i)
	p.settleAs(e, i, partition.Done)
}

func (p *process) settleAs(e, i int, outcome partition.Outcome) {
	w := p.w
	var a partition.Ack
	switch err := p.group.BeginAck(w.id(e, i), &a); {
	case err != nil:
		w.fail("acknowledging %d.%d: %v", e, i, err)
	case a.Object != nil:
		p.acknowledge(a.Object.(*object), a.Whole)
		if again := p.group.EndAck(w.now(), &a, outcome); again != nil {
			p.acknowledge(again.Object.(*object), again.Whole)
		}
	case !a.Late:
		w.fail("the application has %d.%d, but the Group does not know it", e, i)
	}
	p.settled(e, i)
	p.act()
}

// acknowledge imitates upstream: it acknowledges an entry when all messages of one delivery are acknowledged.
func (p *process) acknowledge(o *object, whole bool) {
	o.of.unacked[o.index] = false
	if whole || !slices.Contains(o.of.unacked, true) {
		p.pipe = append(p.pipe, command{entry: o.of.entry})
	}
}

// nack imitates Consumer.Nack.
func (p *process) nack(e, i int) { p.nackOrSnooze(e, i, false) }

// nackOrSnooze imitates Consumer.Nack or, if snoozed is set, Consumer.Snooze.
func (p *process) nackOrSnooze(e, i int, snoozed bool) {
	w, m, id := p.w, p.messages[e][i], p.w.id(e, i)
	p.endHandler(e, i)
	info, ok, _ := p.group.Find(id, m.hand)
	if !ok || !info.Current {
		w.fail("the application nacks %d.%d, but the Group says that the application does not have it", e, i)
		return
	}
	delay := w.delays[p.number]
	d, changed, err := p.group.Nack(w.now(), partition.Failure{ID: id, Hand: m.hand, Delay: delay, Uncounted: snoozed})
	if !changed || err != nil {
		w.fail("a nack of %d.%d had no effect: %v", e, i, err)
	}
	p.logFailure(d, delay, snoozed)
	p.act()
}

// logFailure imitates Consumer.logFailure.
func (p *process) logFailure(d partition.Delivery, delay time.Duration, snoozed bool) {
	e, i := int(d.ID.Entry), int(d.ID.Index)
	key, m := p.w.key(e, i), &p.messages[e][i]
	p.noteOwn(e, i, now()+delay.Milliseconds(), snoozed)
	p.hurried[e][i] = false
	*m = held{had: true, hand: m.hand, count: m.count, crossed: m.crossed}
	if r, ok := p.log.Find(key); ok {
		d.Count = max(d.Count, r.Count)
	}
	if !snoozed {
		d.Count++
	}
	p.log.Failed(key, d.Count, delay, "")
	if i, _, _ := p.group.Find(d.ID, partition.AnyHand); i.State == partition.Settled {
		p.log.Settled(key)
	}
}

// act runs the timers that are due, and carries out the Group's decisions.
func (p *process) act() {
	d := p.group.Advance(p.w.now())
	if d == nil {
		return
	}
	for _, r := range d.Requests {
		p.pipe = append(p.pipe, command{request: true, entry: r.ID.(*object).of.entry})
	}
	for _, d := range d.TimedOut {
		p.endHandler(int(d.ID.Entry), int(d.ID.Index))
		p.logFailure(d, 0, false)
	}
	for _, s := range d.Settled {
		p.log.Settled(p.w.key(int(s.ID.Entry), int(s.ID.Index)))
	}
}

// flush lets the broker carry out the commands that a process has sent.
func (p *process) flush() {
	w := p.w
	for _, c := range p.pipe {
		e := w.entries[c.entry]
		switch {
		case !c.request:
			for i := range e.acked {
				e.acked[i] = true
			}
			e.owner = nobody
		case w.options.Kind == partition.Failover && w.active != p.number:
			// the broker ignores a request of an inactive consumer
		case w.rewinds():
			w.takeBack(p.number)
		case e.owner == p.number:
			e.owner = nobody
			e.count++
			for i := range e.pasts {
				e.pasts[i].requests++
			}
		}
	}
	p.pipe = nil
}
