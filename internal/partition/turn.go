package partition

import (
	"maps"
	"time"
)

// turnSettled makes the settled ids of a partition older. After a loss, acknowledgements may be lost until the
// application has taken everything that the broker had to send again. Before that, no id becomes surer. An application
// that never waits for a whole second shows no such moment, so the oldest ids are forgotten nevertheless.
func (g *Group) turnSettled(now time.Duration, p *Partition) {
	g.reading.at(now)
	from := recent // the generations that may be trimmed
	switch {
	case p.calm == g.epoch:
		p.settled.turn()
		from = sure
	case p.sent == g.epoch && g.connected == g.epoch && g.reading.idleAt >= p.sentAt+idleTime:
		if p.requestDropped(now) {
			p.sent = 0 // acknowledgements are in doubt until the broker sends again
		} else if len(p.coming) == 0 {
			p.calm, p.reads, p.coming = g.epoch, g.epoch, nil
		}
	}
	if p.settled.trim(from, settledBytes/uint64(len(g.partitions))) {
		g.forgetLedgers(p)
	}
	if !p.settled.isEmpty() || len(p.coming) > 0 {
		g.clock.Set(&p.settled.timer, now+g.o.AckedAfter)
	}
}

// settledBytes is how much the settled ids of all partitions take at most.
const settledBytes = 1 << 20

// forgetLedgers forgets the ledgers of a partition that have no known ids left.
func (g *Group) forgetLedgers(p *Partition) {
	known := map[int64]bool{}
	for ledger := range p.ledgers {
		known[ledger] = true
	}
	maps.DeleteFunc(g.ledgers, func(ledger int64, of *Partition) bool { return of == p && !known[ledger] })
}
