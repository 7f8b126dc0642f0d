package attempts

import (
	"slices"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/partition"
)

// process is a consumer of the world. It uses the machine and the Log as a redelivery.Consumer and a Worker do.
type process struct {
	w       *world
	number  int
	start   time.Duration
	log     *Log
	group   *partition.Group
	queue   []*object // upstream's
	pipe    []command // commands on their way to the broker
	waits   bool      // the application waits for a message
	read    int       // frames of the log
	has     [][]held  // messages that the application has, or had
	known   [][]known // failures that the log has, as far as it was read
	own     [][]known // failures here that were not read back
	removal [][]known // of messages that were settled here
	hurried [][]bool  // RedeliverNow ended the delay, which was that of a failure here
	cut     bool      // the log cannot be reached
}

// held is a message as an application knows it.
type held struct {
	has     bool // the application works on it
	handled bool // in a handler
	alone   bool // it crashed other processes: no other such message is handled at the same time
	settled bool // its Ack returned nil
	had     bool // the application has, or had, the message
	crossed bool // a request crossed its newest copy, as in sending
	hand    uint64
	count   uint32
}

// sending is one delivery of an entry. Upstream counts which of its messages are acknowledged.
type sending struct {
	entry int
	left  []bool
	stale bool // the connection was lost since
	// a request was on its way when the broker sent the entry: this sending looks like the answer, but the request then
	// makes the broker take the entry back
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
	if p.waits { // the application takes the message now
		p.waits = false
		p.group.Unwait(w.now())
	}
	s := &sending{entry: n, left: slices.Repeat([]bool{true}, len(e.acked))}
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
		p.group.Wait(w.now())
		return
	}
	p.waits = false
	o := p.queue[0]
	p.queue = p.queue[1:]
	e := o.of.entry
	cp := partition.Copy{ID: w.id(e, o.index), Source: p, Object: o, Body: o, Total: int32(len(o.of.left)),
		Count: o.count, Size: 1}
	p.recall(w.key(e, o.index), &cp)
	p.has[e][o.index].crossed = o.of.crossed
	switch verdict, again := p.group.Arrive(w.now(), &cp, &d); verdict {
	case partition.Deliver:
		d.Body = o
		p.handedOver(d, o)
	case partition.AckAgain:
		p.acknowledge(again.Object.(*object), again.Whole)
	case partition.Buffered, partition.Dropped:
	}
}

// recall is Consumer.recall.
func (p *process) recall(k Key, cp *partition.Copy) {
	if r, ok := p.log.Arrive(k); ok {
		cp.Tries = r.Count
		cp.Wait = max(cp.Wait, time.Until(r.Due))
	}
}

// stands is Consumer.stands.
func (p *process) stands(d *partition.Delivery) bool {
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
	stands := p.group.Recall(p.w.now(), d, r.Count, wait)
	if e, i := int(d.ID.Entry), int(d.ID.Index); !stands && r.Begun == 0 && p.hurried[e][i] {
		p.w.fail("RedeliverNow of process %d has no effect on %d.%d", p.number, e, i)
	}
	return stands
}

// handedOver checks a hand-over, and begins to handle the message if that is allowed now.
func (p *process) handedOver(d partition.Delivery, o *object) {
	if !p.stands(&d) {
		return
	}
	e, i := int(d.ID.Entry), int(d.ID.Index)
	p.checkHandOver(d, o)
	p.w.entries[e].before[i].deliveries++
	p.has[e][i] = held{has: true, had: true, hand: d.Hand, count: d.Count, crossed: p.has[e][i].crossed}
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
	for _, messages := range p.has {
		if slices.ContainsFunc(messages, func(m held) bool { return m.handled && m.alone }) {
			return false
		}
	}
	return true
}

// handle imitates a Worker that gets a message, until its handler is called.
func (p *process) handle(e, i int) {
	w, k, m := p.w, p.w.key(e, i), &p.has[e][i]
	if int(p.log.Crashes(k)) >= w.limit {
		p.checkDead(e, i)
		p.settleAs(e, i, partition.Moved)
		return
	}
	for _, other := range w.processes {
		if other != nil && other != p && other.has[e][i].handled {
			w.entries[e].before[i].beside++
			break
		}
	}
	if p.cut { // it does not wait until the log knows whether the message crashed another process
		w.entries[e].before[i].beside++
	}
	m.alone = p.log.Crashes(k) > 0
	if p.log.IsCareful(k) || m.alone {
		p.log.Begun(k)
		p.publish()
	}
	m.handled = true
	p.checkHandler(e, i)
}

// leave ends the call of a handler.
func (p *process) leave(e, i int) {
	m := &p.has[e][i]
	if m.alone && m.handled {
		p.log.Ended(p.w.key(e, i))
		p.publish()
	}
	m.handled, m.alone = false, false
}

// ack imitates Consumer.Ack.
func (p *process) ack(e, i int) {
	p.leave(e, i)
	p.settleAs(e, i, partition.Done)
}

func (p *process) settleAs(e, i int, outcome partition.Outcome) {
	w := p.w
	var a partition.Ack
	standing, err := p.group.BeginAck(w.id(e, i), &a)
	switch {
	case err != nil:
		w.fail("acknowledging %d.%d: %v", e, i, err)
	case standing == partition.Acknowledge:
		p.acknowledge(a.Object.(*object), a.Whole)
		if again := p.group.EndAck(w.now(), &a, outcome); again != nil {
			p.acknowledge(again.Object.(*object), again.Whole)
		}
	case standing == partition.Unknown:
		w.fail("%d.%d is with the application, but the machine does not know it", e, i)
	}
	p.settled(e, i)
	p.settle()
}

// acknowledge imitates upstream: it acknowledges an entry when all messages of one delivery are acknowledged.
func (p *process) acknowledge(o *object, whole bool) {
	o.of.left[o.index] = false
	if whole || !slices.Contains(o.of.left, true) {
		p.pipe = append(p.pipe, command{entry: o.of.entry})
	}
}

// nack imitates Consumer.Nack.
func (p *process) nack(e, i int) { p.fail(e, i, false) }

// fail imitates Consumer.Nack and Consumer.Snooze.
func (p *process) fail(e, i int, snoozed bool) {
	w, m, id := p.w, p.has[e][i], p.w.id(e, i)
	p.leave(e, i)
	info, ok, _ := p.group.Find(id, m.hand)
	if !ok || !info.Current {
		w.fail("a nack of %d.%d is stale", e, i)
		return
	}
	delay := w.delays[p.number]
	d, had, err := p.group.Nack(w.now(), partition.Failure{ID: id, Hand: m.hand, Delay: delay, Uncounted: snoozed})
	if !had || err != nil {
		w.fail("a nack of %d.%d had no effect: %v", e, i, err)
	}
	p.noteFailure(d, delay, snoozed)
	p.settle()
}

// noteFailure is Consumer.noteFailure.
func (p *process) noteFailure(d partition.Delivery, delay time.Duration, snoozed bool) {
	e, i := int(d.ID.Entry), int(d.ID.Index)
	key, m := p.w.key(e, i), &p.has[e][i]
	p.fails(e, i, now()+delay.Milliseconds(), snoozed)
	p.hurried[e][i] = false
	*m = held{had: true, hand: m.hand, count: m.count, crossed: m.crossed}
	if r, ok := p.log.Find(key); ok {
		d.Count = max(d.Count, r.Count)
	}
	if !snoozed {
		d.Count++
	}
	p.log.Failed(key, d.Count, delay, "")
	if p.group.IsSettled(d.ID) {
		p.log.Settled(key)
	}
}

// settle runs the timers that are due, and carries out the machine's decisions.
func (p *process) settle() {
	d := p.group.Due(p.w.now())
	if d == nil {
		return
	}
	for _, r := range d.Requests {
		p.pipe = append(p.pipe, command{request: true, entry: r.ID.(*object).of.entry})
	}
	for _, d := range d.TimedOut {
		p.leave(int(d.ID.Entry), int(d.ID.Index))
		p.noteFailure(d, 0, false)
	}
	for _, s := range d.Settled {
		p.log.Settled(p.w.key(int(s.ID.Entry), int(s.ID.Index)))
	}
}

// flush makes the broker take the commands that a process has sent.
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
		case w.rewinds():
			w.takeBack(p.number)
		case e.owner == p.number:
			e.owner = nobody
			e.count++
			for i := range e.before {
				e.before[i].requests++
			}
		}
	}
	p.pipe = nil
}
