package model

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// lose breaks the connection. Upstream notices the loss after the time detect, and finds a broker after lookup. If
// gently is set, all acknowledgements reach the broker first.
func (p *modelPart) lose(gently bool, detect, lookup time.Duration) {
	if p.state != live {
		return
	}
	p.w.note("%v loses its connection, gently %t, noticed in %v, the next one in %v", p.sub.name, gently, detect, lookup)
	if gently {
		p.deliverAcks()
	}
	for _, c := range p.outgoing {
		c.lost = true
	}
	p.outgoing = nil
	p.state = dead
	p.epoch++
	p.sub.disconnect()
	for _, other := range p.cons.parts { // the Consumer does not know which topic lost its connection
		for _, e := range other.sub.entries {
			if starved := e.again && time.Since(e.asked) > time.Minute; starved || e.owner == others {
				e.givenUp()
			}
		}
	}
	p.w.at(time.Now().Add(detect), func() { p.reconnect(lookup) })
}

// deliverAcks lets all acknowledgements that are grouped or on their way reach the broker now.
func (p *modelPart) deliverAcks() {
	for _, c := range p.outgoing {
		if !c.isAck {
			continue
		}
		if err := c.do(); c.answer != nil {
			p.awaited = nil
			c.answer <- err
		}
	}
	for _, c := range p.acks.flush(p) {
		_ = c.do()
	}
}

// reconnect models upstream's reconnectToBroker. Until a broker is found, the dispatcher goes on sending the queue.
func (p *modelPart) reconnect(lookup time.Duration) {
	p.w.mu.Lock()
	if p.state == gone {
		p.w.mu.Unlock()
		return
	}
	p.state, p.seeking = reconnecting, false
	p.dispatch()
	if c := p.awaited; c != nil {
		p.awaited = nil
		c.answer <- errModelConnection
	}
	p.w.at(time.Now().Add(lookup), p.w.locked(p.grab))
	attempts := p.rng.IntN(3)
	p.cons.lost = time.Now()
	p.w.mu.Unlock()
	p.cons.reconnects.Add(1)
	if policy := p.cons.opts.BackOffPolicyFunc; policy != nil {
		go func() {
			backOff := policy()
			for range attempts {
				backOff.Next()
			}
			p.inDoubt()
			p.late()
			p.w.mu.Lock()
			p.backOff = backOff
			p.w.mu.Unlock()
		}()
	}
}

// late calls BeforeConsume for a message that upstream had read from the lost connection. The application never gets
// this copy, since the next connection clears upstream's queue.
func (p *modelPart) late() {
	p.w.mu.Lock()
	rng := rand.New(rand.NewPCG(p.cfg.Seed, uint64(p.cons.reconnects.Load())))
	i := slices.IndexFunc(p.sub.entries, func(e *modelEntry) bool { return slices.Contains(e.acked, false) })
	late := p.state == reconnecting && i >= 0 && rng.IntN(2) == 0
	p.w.mu.Unlock()
	if late {
		e := p.sub.entries[i]
		c := &modelCopy{modelDelivery: &modelDelivery{entry: e, left: make([]bool, e.size), filtered: make([]bool, e.size)}, part: p}
		p.cons.opts.Interceptors.BeforeConsume(c.message())
	}
}

func (p *modelPart) inDoubt() {
	p.w.mu.Lock()
	p.doubt = time.Now()
	p.w.mu.Unlock()
}

// grab is upstream's grabConn.
func (p *modelPart) grab() {
	if p.state == gone {
		return
	}
	p.grabLater = p.isAway
	if p.isAway {
		p.tryAgain()
		return
	}
	p.grabbed = time.Now()
	p.w.note("%v clears its queue of %d", p.sub.name, len(p.queue))
	for _, c := range p.queue {
		c.cleared = true
	}
	p.queue = nil
	p.dispatch()
	p.w.at(time.Now().Add(2*p.latency()), p.w.locked(func() {
		if p.state == gone {
			return
		}
		p.w.note("%v is connected again", p.sub.name)
		p.forgotten()
		p.state, p.permits = live, 0
		if backOff := p.backOff; backOff != nil {
			go backOff.Reset()
		}
		p.sub.connect(p)
		if p.rng.IntN(2) == 0 {
			p.pump()
		}
		if p.sub.inactive || p.rng.IntN(2) == 0 {
			p.became(!p.sub.inactive)
			p.grant(p.cfg.Queue)
			p.pump()
			return
		}
		p.grant(p.cfg.Queue) // the broker sends messages for these permits now, and again after the failover delay
		p.pump()
		if p.cfg.Kind == pulsar.Failover {
			p.became(true)
			p.sub.rewind("since the failover delay is over")
			p.sub.dispatch()
		}
	}))
}

// forgotten records, if no message has arrived for an hour, that the Consumer may have stopped requesting messages.
func (p *modelPart) forgotten() {
	asked := func(e *modelEntry) bool { return e.asked.After(p.received) }
	if time.Since(p.received) < time.Hour || !slices.ContainsFunc(p.sub.entries, asked) {
		return
	}
	for _, e := range p.sub.entries {
		e.givenUp()
	}
}

// became tells the listener that the consumer became active or inactive.
func (p *modelPart) became(active bool) {
	if p.cfg.Kind != pulsar.Failover {
		return
	}
	p.fromBroker(func() {
		listener := p.cons.opts.EventListener
		p.w.note("%v became active: %t", p.sub.name, active)
		switch { // upstream calls the listener on the goroutine that receives messages
		case listener == nil:
		case active:
			listener.BecameActive(p, p.sub.name, 0)
		default:
			listener.BecameInactive(p, p.sub.name, 0)
			p.inDoubt()
			p.sub.unrepeated = p.acks.last
		}
	})
}
