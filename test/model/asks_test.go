package model

import (
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// NackID requests a message's entry at the next tick.
func (p *modelPart) NackID(id pulsar.MessageID) {
	e := p.cons.entryOf(p, id)
	if e == nil {
		return
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if _, asked := p.requests[e]; asked || p.state == gone {
		return
	}
	e.late = e.late || p.cons.lost.After(p.received) // until a message arrives, it is possible that this topic lost its connection
	isQueued := slices.ContainsFunc(p.queue, func(c *modelCopy) bool { return c.entry == e })
	e.late = e.late || e.asked.Before(p.grabbed) && (isQueued || p.cons.isBuffered(e))
	// Shortly after a connection is lost, the Consumer may request an entry although a copy of it is in the queue.
	if !p.sub.rewinds() && !e.batch && isQueued && !e.late && !e.asked.After(e.taken) && !p.cfg.Breaks {
		p.w.fail("%v is requested while a copy of it is in the queue: another consumer may get a copy too", e)
	}
	delay := p.cons.opts.NackRedeliveryDelay
	if policy := p.cons.opts.NackBackoffPolicy; policy != nil {
		delay = policy.Next(1)
	}
	due := time.Now().Add(delay)
	if bits := p.cons.opts.NackPrecisionBit; bits != nil {
		due = time.UnixMilli(due.UnixMilli() >> *bits << *bits)
	}
	if len(p.requests) == 0 {
		p.tickAt(delay / 3)
	}
	p.requests[e] = due
}

// tickAt makes the next tick send the requests that are due.
func (p *modelPart) tickAt(every time.Duration) {
	since := time.Since(p.w.start) + every*time.Duration(1+p.index)/7 // each part has its own phase
	p.w.at(time.Now().Add(every-since%every), func() {
		p.w.mu.Lock()
		var entries []*modelEntry
		for e, due := range p.requests {
			if !due.After(time.Now()) {
				delete(p.requests, e)
				entries = append(entries, e)
				e.asked = time.Now()
			}
		}
		slices.SortFunc(entries, func(a, b *modelEntry) int { return a.pos - b.pos })
		if len(p.requests) > 0 {
			p.tickAt(every)
		}
		flushed := len(entries) > 0 && p.state != gone
		if flushed {
			p.w.note("requests %v", entries)
			p.put(&modelCommand{do: func() error { p.sub.redeliver(entries); return nil }})
		}
		p.w.mu.Unlock()
		if flushed {
			ids := make([]pulsar.MessageID, len(entries))
			for i, e := range entries {
				ids[i] = pulsar.NewMessageID(e.ledger, e.entry, 0, 0)
			}
			go p.cons.opts.Interceptors.OnNegativeAcksSend(p, ids)
		}
	})
}
