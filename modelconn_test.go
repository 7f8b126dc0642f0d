package redelivery_test

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// lose breaks the connection, which is noticed after detect. If nothing is to be lost with it, all that was acknowledged
// reaches the broker first.
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
	p.w.at(time.Now().Add(detect), func() { p.reconnect(lookup) })
}

// deliverAcks has all acknowledgements that are grouped or on their way arrive now.
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

// reconnect is upstream's reconnectToBroker: what is in the queue goes on being dispatched until there is a broker again.
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
	p.w.mu.Unlock()
	p.cons.reconnects.Add(1)
	if policy := p.cons.opts.BackOffPolicyFunc; policy != nil {
		go func() {
			backOff := policy()
			for range attempts {
				backOff.Next()
			}
			p.inDoubt()
			p.w.mu.Lock()
			p.backOff = backOff
			p.w.mu.Unlock()
		}()
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
		p.state, p.permits = live, 0
		if backOff := p.backOff; backOff != nil {
			go backOff.Reset()
		}
		p.sub.connect(p)
		if p.rng.IntN(2) == 0 {
			p.pump()
		}
		p.grant(p.cfg.Queue)
		p.pump()
		p.became(!p.sub.inactive)
	}))
}

// became has the listener told.
func (p *modelPart) became(active bool) {
	if p.cfg.Kind != pulsar.Failover {
		return
	}
	p.fromBroker(func() {
		listener := p.cons.opts.EventListener
		p.w.note("%v became active: %t", p.sub.name, active)
		switch {
		case listener == nil:
		case active:
			go listener.BecameActive(p, p.sub.name, 0)
		default:
			go func() {
				listener.BecameInactive(p, p.sub.name, 0)
				p.inDoubt()
			}()
		}
	})
}

// modelGroup is upstream's ackGroupingTracker.
type modelGroup struct {
	entries map[*modelEntry][]bool // what is left of each
	last    *modelPlace            // of cumulative acknowledgements
	lastAck modelAck
	news    bool // about last
}

// modelPlace is a message's in its topic.
type modelPlace struct{ pos, index int }

func (a modelPlace) compare(b modelPlace) int {
	return cmp.Or(cmp.Compare(a.pos, b.pos), cmp.Compare(a.index, b.index))
}

// has tells whether upstream takes a message for a duplicate and drops it.
func (g *modelGroup) has(p *modelPart, e *modelEntry, i int) bool {
	if p.groupSize() <= 1 {
		return false
	}
	if g.last != nil && g.last.compare(modelPlace{e.pos, i}) >= 0 {
		return true
	}
	left, ok := g.entries[e]
	return ok && (left == nil || !left[i])
}

func (g *modelGroup) add(p *modelPart, e *modelEntry, index int, whole bool) {
	g.start(p)
	left, ok := g.entries[e]
	switch {
	case whole:
		left = nil
	case !ok:
		left = make([]bool, e.size)
		for i := range left {
			left[i] = true
		}
	}
	if left != nil {
		left[index] = false
	}
	g.entries[e] = left
	if len(g.entries) >= p.groupSize() {
		news := g.news
		g.news = false
		for _, c := range g.flush(p) {
			p.put(c)
		}
		g.news = news
	}
}

func (g *modelGroup) addUpTo(p *modelPart, a modelAck, at modelPlace) {
	if g.last != nil && g.last.compare(at) >= 0 {
		return
	}
	g.start(p)
	g.last, g.lastAck, g.news = &at, a, true
	if p.groupSize() <= 1 {
		for _, c := range g.flush(p) {
			p.put(c)
		}
	}
}

// start has the group flushed with the next tick.
func (g *modelGroup) start(p *modelPart) {
	every := p.groupTime()
	if len(g.entries) > 0 || g.news || every <= 0 {
		return
	}
	since := time.Since(p.w.start) + every*time.Duration(1+p.index)/9
	p.w.at(time.Now().Add(every-since%every), p.w.locked(func() {
		for _, c := range g.flush(p) {
			p.put(c)
		}
	}))
}

func (g *modelGroup) flush(p *modelPart) (commands []*modelCommand) {
	if len(g.entries) > 0 && p.state != gone {
		var acks []modelAck
		for _, e := range slices.SortedFunc(maps.Keys(g.entries), func(a, b *modelEntry) int { return a.pos - b.pos }) {
			acks = append(acks, modelAck{e, g.entries[e]})
		}
		commands = append(commands, p.ackCommand(acks, false))
	}
	clear(g.entries)
	if g.news {
		g.news = false
		commands = append(commands, p.ackCommand([]modelAck{g.lastAck}, true))
	}
	return commands
}

func (p *modelPart) groupSize() int {
	if o := p.cons.opts.AckGroupingOptions; o != nil {
		return int(o.MaxSize)
	}
	return 1000
}

func (p *modelPart) groupTime() time.Duration {
	if o := p.cons.opts.AckGroupingOptions; o != nil {
		return o.MaxTime
	}
	return 100 * time.Millisecond
}

func (p *modelPart) ackCommand(acks []modelAck, upTo bool) *modelCommand {
	return &modelCommand{isAck: true, do: func() error {
		p.w.note("the broker takes acknowledgements of %v, cumulative %t", acks, upTo)
		for _, a := range acks {
			if upTo {
				p.sub.ackUpTo(a)
			} else {
				p.sub.ack(a)
			}
		}
		p.sub.dispatch()
		return nil
	}}
}
