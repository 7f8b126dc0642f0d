package partition

import (
	"slices"
	"time"
)

// request asks the broker for the due messages of an entry or, where the broker rewinds, of a partition.
type request struct {
	partition *Partition
	entry     *entry        // nil for all of a partition
	open      bool          // it was sent, and its answer may be on its way
	begun     bool          // where the broker rewinds: the answer has begun to come
	more      bool          // where the broker rewinds: the answer had already passed a message when the message became due
	tries     int           // requests since an answer came
	mark      time.Duration // reading.total when it was sent
	timer     timer
}

const (
	firstPause, longestPause = time.Second, 10 * time.Second
	// inVain is how often a message is requested before it counts as another consumer's, or as acknowledged elsewhere.
	inVain = 10
)

// pause is how long the application reads in vain before a request is repeated.
func (r *request) pause() time.Duration {
	return r.partition.group.o.RequestTime + min(longestPause, firstPause<<min(max(0, r.tries-1), 10))
}

// asked returns how many messages wait for the answer.
func (r *request) asked() int {
	if r.entry != nil {
		return int(r.entry.in[Asked])
	}
	return r.partition.in[Asked]
}

// requestOf returns the request for an entry, and makes it if there is none yet.
func (g *Group) requestOf(e *entry) *request {
	if g.o.rewinds() {
		return &e.partition.request
	}
	if e.request == nil {
		e.request = &request{partition: e.partition, entry: e}
		e.request.timer.Of.request = e.request
	}
	return e.request
}

// stopRequest stops the timer of an entry's request, if there is one.
func (g *Group) stopRequest(e *entry) {
	if e.request != nil {
		g.clock.Stop(&e.request.timer)
	}
}

// ask requests a due message from the broker, unless an open request covers it.
func (g *Group) ask(now time.Duration, m *message) {
	g.drop(m)
	g.clock.Stop(&m.timer)
	m.move(Asked)
	r := g.requestOf(m.entry)
	switch {
	case !r.open:
		g.send(now, r)
	case r.begun && !r.partition.last.before(m.place()):
		r.more = true
	}
}

// expect makes a message wait for the copy that the broker is about to send by itself. If none comes, it is requested.
func (g *Group) expect(now time.Duration, m *message) {
	m.move(Asked)
	m.waits = now
	g.await(now, g.requestOf(m.entry))
}

// await sets the timer for copies that the broker is going to send without a request.
func (g *Group) await(now time.Duration, r *request) {
	if !r.open && r.asked() > 0 {
		r.open, r.mark = true, g.reading.at(now)
		g.clock.Set(&r.timer, now+r.pause())
	}
}

// send sends a request, and sets the timer to check on it.
func (g *Group) send(now time.Duration, r *request) {
	waiting := r.waiting()
	if len(waiting) == 0 {
		r.open = false
		g.await(now, r)
		return
	}
	first := slices.MinFunc(waiting, func(a, b *message) int { return a.place().compare(b.place()) })
	r.open, r.begun, r.more, r.mark = true, false, false, g.reading.at(now)
	if r.tries++; !r.partition.isAnswering() {
		r.tries = min(r.tries, inVain-1)
	}
	if g.o.hasOthers() {
		for m := range first.entry.all { // all of a batch may go to another consumer
			m.epoch = 0
		}
	}
	r.partition.sendAgain(first.id)
	g.clock.Set(&r.timer, now+r.pause())
}

// sendAgain asks the broker for the entry of a delivery or, where it rewinds, for everything that is not acknowledged.
func (p *Partition) sendAgain(object any) {
	p.group.out.Requests = append(p.group.out.Requests, Request{p.source, p.topic, object})
}

// waiting returns the messages that wait for the answer, without those that are in upstream's queue.
func (r *request) waiting() (all []*message) {
	messages := r.partition.messages
	if r.entry != nil {
		messages = r.entry.all
	}
	for m := range messages {
		if m.state == Asked && !r.partition.isComing(m.place()) {
			all = append(all, m)
		}
	}
	return all
}

// requestOver checks on a request whose pause is over. It ends the request if no message waits for it, waits on while
// the answer may be in upstream's queue, and gives up after too many requests in vain. Otherwise it sends the request
// again.
func (g *Group) requestOver(now time.Duration, r *request) {
	p := r.partition
	silent := g.reading.at(now) - max(r.mark, p.silence)
	switch {
	case r.asked() == 0:
		r.end()
	case r.open && silent < r.pause() && !r.isMissing():
		g.clock.Set(&r.timer, now+r.pause()-silent)
	case r.tries >= inVain && p.isAnswering():
		g.giveUpAsked(now, r)
	default:
		g.send(now, r)
	}
}

// isAnswering reports whether the broker gets requests and answers them: all partitions have a connection, and on
// Failover this consumer is the partition's active one.
func (p *Partition) isAnswering() bool {
	return p.group.connected == p.group.epoch && !p.isInactive()
}

// isUnsent reports whether an entry was not requested, because the broker is expected to send it by itself.
func (r *request) isUnsent() bool { return r.entry != nil && r.tries == 0 }

// isMissing reports whether an entry that was not requested has an awaited message that is not in upstream's queue.
func (r *request) isMissing() bool { return r.isUnsent() && len(r.waiting()) > 0 }

// comes notes that one of the messages that waited for the answer has come.
func (r *request) comes() {
	r.tries = 0
	if r.asked() == 0 {
		r.end()
	}
}

// excess returns how many of the answered requests were not followed by a hand-over. The broker counts these requests
// too.
func (r *request) excess(delivered bool) uint32 {
	switch {
	case r.entry == nil || r.tries == 0:
		return 0
	case delivered:
		return uint32(r.tries - 1)
	}
	return uint32(r.tries)
}

// end notes that nothing waits for an answer any more.
func (r *request) end() {
	r.open, r.begun, r.more, r.tries = false, false, false, 0
	r.partition.group.clock.Stop(&r.timer)
}

// giveUpAsked forgets the messages that were requested in vain. They are another consumer's, or acknowledged.
func (g *Group) giveUpAsked(now time.Duration, r *request) {
	for _, m := range r.waiting() {
		if m.busy == 0 {
			g.forget(now, m)
		}
	}
	r.end()
}

// passes notes that a copy came. Where the broker rewinds, the answer to a request begins with the first copy that is
// not after the previous one, and ends with the furthest message that ever came.
func (g *Group) passes(now time.Duration, p *Partition, at place) {
	r := &p.request
	if !p.last.before(at) {
		r.begun = r.open
	}
	p.last = at
	if p.top.before(at) {
		p.top = at
	}
	if r.begun && at == p.top {
		g.answered(now, r)
	}
}

// answered notes that the answer of a request is over.
func (g *Group) answered(now time.Duration, r *request) {
	more := r.more
	r.open, r.begun, r.more = false, false, false
	switch {
	case r.asked() == 0:
		r.end()
	case more:
		g.send(now, r)
	}
}
