package model

import (
	"time"

	"github.com/pulsar-redelivery/redelivery/nack"
)

// away is the topic that has no broker, nil if each has one.
func (r *modelRun) away() *modelPart {
	if !r.cfg.Away {
		return nil
	}
	return r.cons.parts[r.cfg.base()%uint64(len(r.cons.parts))]
}

// goAway has a topic lose its connection. Until comeBack there is none.
func (r *modelRun) goAway() {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	p := r.away()
	p.isAway = true
	p.lose(true, 0, 0)
	if p.state == live { // it had none at this moment
		r.w.fail("%v has its connection", p.sub.name)
	}
}

// tryAgain has an attempt to connect fail now and then, as long as there is no broker.
func (p *modelPart) tryAgain() {
	if p.isAway && p.state == reconnecting {
		if p.backOff != nil {
			p.backOff.Next()
		}
		p.w.at(time.Now().Add(30*time.Second), p.w.locked(p.tryAgain))
	}
}

// isSilent reports whether nothing is published any more: a topic that is sent something may recover by that.
func (r *modelRun) isSilent() bool { return r.cfg.Away && r.steps <= 60 && r.cfg.base()%4 > 0 }

// comeBack ends goAway, when all that the other topics have is settled.
func (r *modelRun) comeBack(limit time.Duration) {
	p := r.away()
	if p == nil {
		return
	}
	if r.panics.Load() > 0 { // of a policy, perhaps: the delay is the default one then
		limit += nack.DefaultDelay
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

// checkMemory checks how much is kept.
func (r *modelRun) checkMemory() {
	limit := r.cfg.MemoryLimit
	if !r.cfg.Deep || limit < 0 {
		return
	}
	if r.cfg.Chan {
		limit += 2 << 10 // for the message that the channel is offered
	}
	if s := r.c.Stats(); s.BufferedBytes < 0 || s.BufferedBytes > limit || s.Waiting < 0 {
		r.w.fail("%d bytes are kept, want 0 to %d: %+v", s.BufferedBytes, limit, s)
	}
}

// mostInARow is how many messages may be handed out again, one after another, while a new one is at the head of a
// queue.
const mostInARow = 100

// checkTurn checks that new messages have their turn. The caller holds r.mu.
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
		r.w.fail("%d messages in a row are handed out again, while new ones wait: %v", r.again, heads)
	}
}

// heads returns the copies that the topics' dispatchers are about to deliver.
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
