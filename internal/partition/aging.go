package partition

import (
	"maps"
	"time"
)

// ageSettled makes the settled ids of a partition older. After a loss, acknowledgements are in doubt until the
// application has taken everything that the broker had to send again. Until then, no id gets older. If the application
// never waits for a whole second, the Group never learns that this moment has come. So the oldest ids beyond
// settledBytes are forgotten in any case.
func (g *Group) ageSettled(now time.Duration, p *Partition) {
	from := recent // the generations that may be trimmed
	switch {
	case p.calmEpoch == g.epoch:
		p.settled.age()
		from = sure
	case g.connectedEpoch == g.epoch && g.reading.idleAt >= max(p.sentAt, g.lossAt)+idleTime:
		if p.requestDropped(now, anyEpoch) {
			p.sentEpoch = 0 // acknowledgements are in doubt until the broker sends again
		} else if p.sentEpoch == g.epoch && len(p.coming) == 0 {
			p.calmEpoch, p.readEpoch, p.coming = g.epoch, g.epoch, nil
		}
	}
	if p.settled.trim(from, settledBytes/uint64(len(g.partitions))) {
		g.forgetLedgers(p)
	}
	if p.settled.canAge() || len(p.coming) > 0 {
		g.clock.Set(&p.settled.timer, now+g.o.AckedAfter)
	}
}

// settledBytes is the memory that the settled ids of all partitions may take.
const settledBytes = 1 << 20

// forgetLedgers forgets the ledgers of a partition that have no known ids left.
func (g *Group) forgetLedgers(p *Partition) {
	known := map[int64]bool{}
	for ledger := range p.ledgers {
		known[ledger] = true
	}
	maps.DeleteFunc(g.ledgers, func(ledger int64, of *Partition) bool { return of == p && !known[ledger] })
}
