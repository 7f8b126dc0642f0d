package partition

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/clock"
)

// encoder writes the state of a world as bytes. Worlds with equal bytes have equal futures. Times are relative to now.
// Sendings are numbered in the order in which the encoder meets them.
type encoder struct {
	b        []byte
	now      time.Duration
	sendings map[*sending]int
}

func (x *encoder) int(v int64) { x.b = binary.AppendVarint(x.b, v) }

func (x *encoder) bools(all ...bool) {
	for _, v := range all {
		if v {
			x.b = append(x.b, 1)
		} else {
			x.b = append(x.b, 0)
		}
	}
}

// time encodes a time relative to now.
func (x *encoder) time(at time.Duration) { x.int(int64(at - x.now)) }

// since encodes how long ago a time is, up to a minute. More makes no difference.
func (x *encoder) since(at time.Duration) { x.int(int64(max(at-x.now, -time.Minute))) }

func (x *encoder) object(v any) {
	o, _ := v.(*object)
	if o == nil {
		x.int(-1)
		return
	}
	n, met := x.sendings[o.of]
	if !met {
		n = len(x.sendings)
		x.sendings[o.of] = n
	}
	x.int(int64(n))
	if !met {
		x.int(int64(o.of.topic))
		x.int(int64(o.of.entry))
		x.bools(o.of.unacked...)
		x.bools(o.of.forgotten, o.of.requested, o.of.stale)
	}
	x.int(int64(o.index))
	x.int(int64(o.count))
}

var seed = maphash.MakeSeed()

func (w *world) hash(x *encoder) uint64 {
	x.b, x.now = x.b[:0], w.now
	clear(x.sendings)
	for _, t := range w.topics {
		x.bools(t.inactive, t.lost)
		for i, e := range t.entries {
			x.bools(e.acked...)
			x.bools(e.leftOut...)
			x.int(int64(e.owner))
			x.int(int64(e.count))
			for _, m := range t.messages[i] {
				x.appMessage(m)
			}
		}
	}
	x.bools(w.waits, w.reset, w.lost && w.resets)
	x.place(w.last)
	x.int(int64(len(w.queue)))
	for _, o := range w.queue {
		x.object(o)
	}
	for _, c := range w.pipe {
		x.bools(true, c.request)
		x.int(int64(c.topic))
		x.int(int64(c.entry))
		x.int(int64(c.index))
		x.int(int64(c.op))
	}
	for _, op := range w.ops {
		x.bools(false, op.inPipe, op.ack.Whole, op.m == nil)
		x.int(int64(op.topic))
		x.int(int64(op.entry))
		x.object(op.ack.Object)
	}
	w.encodeGroup(x)
	return maphash.Bytes(seed, x.b)
}

func (x *encoder) appMessage(m *appMessage) {
	x.bools(m.held, m.everHeld, m.settled, m.mayReturn, m.mustReturn, m.acking, m.uncounted, m.inTxn, m.hasEarlierHand, m.ackedElsewhere, m.doubtful, m.offered)
	x.time(max(m.notUntil, x.now))
	x.time(max(m.deadline, x.now))
	if m.settled {
		x.since(max(m.settledAt, x.now-4*tick))
	}
	x.int(int64(m.count))
	x.int(int64(m.brokerCount))
}

func (x *encoder) place(p place) {
	x.int(p.ledger)
	x.int(p.entry)
	x.int(int64(p.index))
}

func (x *encoder) timer(c *clock.Clock[timed], t *timer) {
	if !t.IsSet() {
		x.int(-1)
		return
	}
	rank := 0
	for _, other := range c.Timers() {
		if other.Before(t) {
			rank++
		}
	}
	x.int(int64(rank))
	x.time(t.At())
}

func (w *world) encodeGroup(x *encoder) {
	g := w.g
	x.int(g.memory)
	x.bools(g.newIsNext, g.reading.waits)
	g.reading.at(w.now)
	x.since(g.reading.last)
	x.since(g.reading.idleAt)
	if g.reading.waits {
		x.since(g.reading.began)
	}
	for _, m := range g.ready {
		x.int(int64(m.state))
		if m.entry != nil {
			x.place(place{m.entry.at, m.index})
		}
	}
	for t := range w.topics {
		p := g.partitions[topicName(t)]
		if p == nil {
			x.int(-2)
			continue
		}
		w.encodePartition(x, p, t)
	}
}

func (w *world) encodePartition(x *encoder, p *Partition, t int) {
	g := w.g
	x.request(g.Group, &p.request)
	x.place(p.last)
	x.place(p.top)
	x.bools(p.gap.open, p.gap.requested)
	if p.gap.open {
		x.place(p.gap.first)
		x.place(p.gap.last)
	}
	x.bools(p.readEpoch < p.activeEpoch, p.readEpoch >= max(p.floor, g.floor), p.readEpoch == g.epoch, p.sentEpoch == g.epoch, p.calmEpoch == g.epoch, p.current != nil)
	if p.current != nil {
		x.int(p.current.at.entry)
	}
	for e, messages := range w.topics[t].messages {
		for i := range messages {
			at := w.id(t, e, i).place()
			x.bools(p.isComing(at))
			for _, c := range p.coming[at] {
				x.object(c.object)
				x.since(c.at)
				x.int(max(-1, int64(c.number)-int64(p.lastRead)))
				x.int(min(3, int64(g.epoch-c.epoch)))
				x.bools(c.isReset, c.epoch < p.activeEpoch, c.epoch >= max(p.floor, g.floor))
			}
			x.int(-1)
		}
	}
	x.bools(p.sentEpoch < p.activeEpoch, p.sentEpoch >= max(p.floor, g.floor))
	x.int(min(3, int64(g.epoch-p.readEpoch)))
	x.bools(g.connectedEpoch == g.epoch)
	if p.calmEpoch != g.epoch && p.sentEpoch == g.epoch {
		x.since(p.sentAt)
	}
	x.int(int64(max(-time.Minute, p.readingWhenCopyCame-g.reading.total)))
	x.timer(&g.clock, &p.settled.timer)
	for e, messages := range w.topics[t].messages {
		at := w.id(t, e, 0).position()
		for _, of := range p.settled.generations {
			b := of[at.ledger]
			x.bools(b != nil && b.Contains(uint64(e)))
		}
		for i := range messages {
			x.bools(p.settled.parts[at].has(int32(i)))
		}
		entry := p.entries[at]
		if entry == nil {
			x.int(-3)
			continue
		}
		a := entry.ack
		x.bools(a.repeated, a.came, a.epoch == g.epoch)
		x.int(int64(a.last))
		x.int(int64(a.total))
		x.request(g.Group, cmp.Or(entry.request, &request{}))
		for i := range messages {
			m := entry.known(int32(i))
			if m == nil {
				x.int(-4)
				continue
			}
			x.int(int64(m.state))
			x.int(int64(m.busy))
			x.object(m.id)
			x.int(int64(m.count))
			x.int(int64(m.brokerCount))
			x.int(int64(m.excess))
			x.int(int64(m.cause))
			x.bools(m.timeout > 0)
			if m.undecided {
				x.time(max(m.due, w.now))
			}
			x.bools(!m.isStale(), m.delivered, m.uncounted, m.queued, m.undecided, m.body != nil,
				m.hand == w.topics[t].messages[e][i].hand)
			x.timer(&g.clock, &m.timer)
			if m.firstFailed > 0 && g.o.Kind == KeyShared {
				x.since(max(m.firstFailed, w.now-readyKeyShared))
			}
		}
	}
}

func (x *encoder) request(g *Group, r *request) {
	x.bools(r.open, r.answering, r.needsAnother)
	x.int(int64(r.tries))
	if r.open {
		x.int(int64(max(-time.Minute, r.readingWhenSent-g.reading.total)))
	}
	x.timer(&g.clock, &r.timer)
}
