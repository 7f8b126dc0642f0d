package model

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// modelGroup models upstream's ackGroupingTracker.
type modelGroup struct {
	entries map[*modelEntry][]bool // the unacknowledged messages of each entry
	last    *modelPlace            // the last cumulative acknowledgement
	lastAck modelAck
	news    bool // last has not been sent yet
}

// modelPlace is the position of a message in its topic.
type modelPlace struct{ pos, index int }

func (a modelPlace) compare(b modelPlace) int {
	return cmp.Or(cmp.Compare(a.pos, b.pos), cmp.Compare(a.index, b.index))
}

// has reports whether upstream drops a message as a duplicate.
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

// start makes the next tick flush the group.
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
