package partition

import (
	"slices"
	"time"
)

// request asks the broker for the due messages of an entry or, where the broker rewinds, of a partition.
type request struct {
	partition       *Partition
	entry           *entry        // nil for all of a partition
	open            bool          // its answer may be on its way: it was sent, or the broker sends by itself
	answering       bool          // where the broker rewinds: the answer has begun to come
	needsAnother    bool          // where the broker rewinds: a message became due after the answer had passed it
	tries           int           // requests since an answer came
	readingWhenSent time.Duration // reading.total when it was sent
	timer           timer
}

const (
	firstPause, longestPause = time.Second, 10 * time.Second
	// inVain is the number of unanswered requests after which a message counts as another consumer's, or as
	// acknowledged elsewhere.
	inVain = 10
)

// pause is how long the application reads without an answer before the request is repeated.
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

// requestOf returns the request for an entry. It makes the request if there is none yet.
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
		g.sendRequest(now, r)
	case r.answering && !r.partition.last.before(m.place()):
		r.needsAnother = true
	}
}

// expect makes a message wait for the copy that the broker is about to send by itself. If no copy comes, the message is
// requested.
func (g *Group) expect(now time.Duration, m *message) {
	m.move(Asked)
	m.waitsSince = now
	g.await(now, g.requestOf(m.entry))
}

// await sets the timer of a request for copies that the broker is about to send by itself.
func (g *Group) await(now time.Duration, r *request) {
	if !r.open && r.asked() > 0 {
		r.open, r.readingWhenSent = true, g.reading.at(now)
		g.clock.Set(&r.timer, now+r.pause())
	}
}

// sendRequest sends a request, and sets the timer that checks for the answer.
func (g *Group) sendRequest(now time.Duration, r *request) {
	missing := r.notComing()
	if len(missing) == 0 {
		r.open = false
		g.await(now, r)
		return
	}
	first := slices.MinFunc(missing, func(a, b *message) int { return a.place().compare(b.place()) })
	r.open, r.answering, r.needsAnother, r.readingWhenSent = true, false, false, g.reading.at(now)
	r.tries++
	if !r.partition.isReachable() {
		r.tries = min(r.tries, inVain-1)
	}
	if g.o.hasOthers() {
		for m := range first.entry.all { // the whole batch may go to another consumer
			m.epoch = 0
		}
	}
	r.partition.addRequest(first.id)
	g.clock.Set(&r.timer, now+r.pause())
}

// addRequest adds a request to the decisions: for the entry of a delivery or, where the broker rewinds, for everything
// that is not acknowledged.
func (p *Partition) addRequest(object any) {
	p.group.out.Requests = append(p.group.out.Requests, Request{p.source, p.topic, object})
}

// notComing returns the messages that wait for the answer and have no copy in upstream's queue.
func (r *request) notComing() (all []*message) {
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

// pauseOver decides about a request whose pause is over. It ends the request if no message waits for the answer. It
// sets the timer again while the answer may be in upstream's queue. It gives up after too many requests in vain.
// Otherwise it sends the request again.
func (g *Group) pauseOver(now time.Duration, r *request) {
	p := r.partition
	silent := g.reading.at(now) - max(r.readingWhenSent, p.readingWhenCopyCame)
	switch {
	case r.asked() == 0:
		r.end()
	case r.open && silent < r.pause() && !r.isMissing():
		g.clock.Set(&r.timer, now+r.pause()-silent)
	case r.tries >= inVain && p.isReachable():
		g.forgetAsked(now, r)
	default:
		g.sendRequest(now, r)
	}
}

// isReachable reports whether the broker gets requests and answers them: all partitions have a connection, and on
// Failover this consumer is the partition's active one.
func (p *Partition) isReachable() bool {
	return p.group.connectedEpoch == p.group.epoch && !p.isInactive()
}

// isMissing reports whether the broker was expected to send an entry by itself, and an awaited message of the entry has
// no copy in upstream's queue.
func (r *request) isMissing() bool { return r.entry != nil && r.tries == 0 && len(r.notComing()) > 0 }

// messageCame notes that one of the messages that waited for the answer has come.
func (r *request) messageCame() {
	r.tries = 0
	if r.asked() == 0 {
		r.end()
	}
}

// excess returns how many of the answered requests led to no hand-over. The broker counts these requests, too.
func (r *request) excess(delivered bool) uint32 {
	switch {
	case r.entry == nil || r.tries == 0:
		return 0
	case delivered:
		return uint32(r.tries - 1)
	}
	return uint32(r.tries)
}

// end notes that no message waits for an answer any more.
func (r *request) end() {
	r.open, r.answering, r.needsAnother, r.tries = false, false, false, 0
	r.partition.group.clock.Stop(&r.timer)
}

// forgetAsked forgets the messages that were requested in vain: another consumer has them, or they are acknowledged.
func (g *Group) forgetAsked(now time.Duration, r *request) {
	for _, m := range r.notComing() {
		if m.busy == 0 {
			g.forget(now, m)
		}
	}
	r.end()
}

// followAnswer notes that a copy came. Where the broker rewinds, the answer to a request begins with the first copy
// that is not after the previous one, and ends with the furthest message that ever came.
func (g *Group) followAnswer(now time.Duration, p *Partition, at place) {
	r := &p.request
	if !p.last.before(at) {
		r.answering = r.open
	}
	p.last = at
	if p.top.before(at) {
		p.top = at
	}
	if r.answering && at == p.top {
		g.answerOver(now, r)
	}
}

// answerOver notes that the answer to a request has come completely.
func (g *Group) answerOver(now time.Duration, r *request) {
	more := r.needsAnother
	r.open, r.answering, r.needsAnother = false, false, false
	switch {
	case r.asked() == 0:
		r.end()
	case more:
		g.sendRequest(now, r)
	}
}
