package ledger

import (
	"time"
)

// young are the messages whose ack timeout began a moment ago. Most are settled before that is over, so that the tracker, which costs as
// much as all the rest, never hears of them.
type young struct {
	handed []handed
	timer  *time.Timer
}

// handed is a hand-over, and since when its ack timeout runs, by Ledger.Now. It has no pointers: what is settled is not kept alive, nor
// looked at by the garbage collector.
type handed struct {
	ref     Ref
	entry   entryID
	since   time.Duration
	timeout time.Duration
	stream  uint32 // a shadow topic's message may have the place of its source's, and the same id
	hand    uint8
}

const (
	youngTime = 100 * time.Millisecond // after which the tracker is told
	maxYoung  = 1 << 14
)

// StartTimeout starts the ack timeout of a message that the application has taken, unless it settled it already.
func (l *Ledger) StartTimeout(d Delivery, timeout time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, r := l.table.at(d.Ref)
	if !l.isCurrent(r, d) {
		return
	}
	l.timesOut(d.Ref, e, timeout) // first, or observers see it come before its time
	if timeout <= youngTime {
		r.flags |= timed
		l.timeouts.TrackFor(uint64(d.Ref), timeout)
		return
	}
	y := &l.young
	y.handed = append(y.handed, handed{d.Ref, l.table.entries.At(d.Ref.slot()).Key, l.Now(), timeout, e.stream().number, d.Hand})
	switch len(y.handed) {
	case 1:
		y.timer.Reset(youngTime)
	case maxYoung:
		l.ripen()
	}
}

// ripe is called after youngTime.
func (l *Ledger) ripe() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ripen()
}

// ripen tells the tracker of the messages that the application has still. The caller holds mu.
func (l *Ledger) ripen() {
	for _, h := range l.young.handed {
		e, r := l.table.at(h.ref)
		if r != nil && r.state == inFlight && r.hand == h.hand && !r.flags.has(timed) && l.table.entries.At(h.ref.slot()).Key == h.entry && e.stream().number == h.stream {
			r.flags |= timed
			l.timeouts.TrackSince(uint64(h.ref), h.timeout, l.Now()-h.since)
		}
	}
	l.young.handed = l.young.handed[:0]
}
