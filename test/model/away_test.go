package model

import (
	"time"
)

// away returns the topic that has no broker for a time, or nil.
func (r *modelRun) away() *modelPart {
	if !r.cfg.Away {
		return nil
	}
	return r.cons.parts[r.cfg.base()%uint64(len(r.cons.parts))]
}

// goAway breaks the connection of the topic that away returns. The topic gets no new connection until comeBack.
func (r *modelRun) goAway() {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	p := r.away()
	p.isAway = true
	p.lose(true, 0, 0)
	if p.state == live {
		r.w.fail("%v is still connected after its broker went away", p.sub.name)
	}
}

// tryAgain makes attempts to connect fail while there is no broker.
func (p *modelPart) tryAgain() {
	if p.isAway && p.state == reconnecting {
		if p.backOff != nil {
			p.backOff.Next()
		}
		p.w.at(time.Now().Add(30*time.Second), p.w.locked(p.tryAgain))
	}
}

// isSilent reports whether the run publishes no more messages, since a new message could make a topic recover.
func (r *modelRun) isSilent() bool { return r.cfg.Away && r.steps <= 60 && r.cfg.base()%4 > 0 }

// comeBack gives the topic of goAway a broker again when all messages of the other topics are settled.
func (r *modelRun) comeBack(limit time.Duration) {
	p := r.away()
	if p == nil {
		return
	}
	if !r.w.run(limit, func() bool { return len(r.missing(1)) == 0 }) {
		r.w.fail("while %v is away: after %v of only Receive and Ack, messages of other topics are missing: %v, %+v", p.sub.name, limit,
			r.missing(10), r.c.Stats())
		return
	}
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	p.isAway = false
	if p.grabLater {
		r.w.at(time.Now(), r.w.locked(p.grab))
	}
}

// checkMemory checks how many bytes the Consumer keeps.
func (r *modelRun) checkMemory() {
	limit := r.cfg.MemoryLimit
	if !r.cfg.Deep || limit < 0 {
		return
	}
	if r.cfg.Chan {
		limit += 2 << 10 // for the message that waits to enter the channel
	}
	if s := r.c.Stats(); s.BufferedBytes < 0 || s.BufferedBytes > limit || s.Waiting < 0 {
		r.w.fail("%d bytes are kept, want 0 to %d: %+v", s.BufferedBytes, limit, s)
	}
}

// mostInARow is how many redeliveries may come in a row while a new message is at the head of a queue.
const mostInARow = 100

// checkTurn checks that redeliveries do not starve new messages. The caller holds r.mu.
func (r *modelRun) checkTurn(m *modelExpected, heads []*modelCopy) {
	waits := false
	for _, head := range heads {
		known := r.known[keyOf(head.entry, head.index)]
		waits = waits || known == nil && head == r.head[head.part]
		r.head[head.part] = head
	}
	r.again++
	if m.stand == modelFresh || !waits {
		r.again = 0
	} else if r.again > mostInARow && r.cfg.Deep {
		r.w.fail("%d redeliveries in a row while new messages wait: %v", r.again, heads)
	}
}

// heads returns the copy that each topic's dispatcher sends next.
func (r *modelRun) heads() (heads []*modelCopy) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	for _, p := range r.cons.parts {
		if len(p.queue) > 0 && !p.seeking {
			heads = append(heads, p.queue[0])
		}
	}
	return heads
}
