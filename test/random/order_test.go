package random

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
)

// published is a message with its id, which gives its place in its partition.
type published struct {
	n  int
	id pulsar.MessageID
}

func (p published) compare(other published) int {
	a, b := p.id, other.id
	return cmp.Or(cmp.Compare(a.LedgerID(), b.LedgerID()), cmp.Compare(a.EntryID(), b.EntryID()), cmp.Compare(a.BatchIdx(), b.BatchIdx()))
}

// arrange records the place of each message in its partition. The caller holds mu.
func (r *randomRun) arrange() {
	for partition, all := range r.published {
		slices.SortFunc(all, published.compare)
		for i, p := range all {
			r.fates[p.n].partition, r.fates[p.n].place = partition, i
		}
		if _, ok := r.reached[partition]; !ok {
			r.reached[partition] = -1
		}
	}
}

// arranged waits until the place of message n is known, and returns n.
func (r *randomRun) arranged(n int) int {
	for {
		r.mu.Lock()
		known := r.fates[n].partition != ""
		r.mu.Unlock()
		if known || r.guard.over.Load() {
			return n
		}
		time.Sleep(time.Millisecond)
	}
}

// checkOrder checks that the first deliveries of a partition's messages are in the order of the partition. The caller
// holds mu.
func (r *randomRun) checkOrder(n int, f *fate) {
	if f.handled > 0 {
		return
	}
	reached := r.reached[f.partition]
	if f.place < reached && r.Ordered() {
		r.faultLocked("message %d is out of order: it is number %d of its partition, and comes for the first time after number %d: %v",
			n, f.place, reached, f)
	}
	r.reached[f.partition] = max(reached, f.place)
}

// settleTo acknowledges every Every-th message cumulatively.
func (a *randomApp) settleTo(d *delivery) {
	if a.owesBefore(d) {
		a.ack(d, func() error { return a.c.Ack(a.wrap(d.msg)) })
		return
	}
	a.open[d.f.partition] = append(a.open[d.f.partition], d)
	a.count++
	if a.count%a.Every == 0 {
		a.ackTo(d)
	}
}

// owesBefore reports whether the application is careful and a message that precedes d will come again.
func (a *randomApp) owesBefore(d *delivery) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.published[d.f.partition][:d.f.place] {
		if f := a.fates[p.n]; a.Careful && f.failures > 0 && f.settled.IsZero() {
			return true
		}
	}
	return false
}

// flushOpen acknowledges the messages in open.
func (a *randomApp) flushOpen() {
	for _, open := range a.open {
		for len(open) > 0 {
			d := slices.MaxFunc(open, func(a, b *delivery) int { return a.f.place - b.f.place })
			if !a.owesBefore(d) {
				a.ackTo(d)
				break
			}
			a.ack(d, func() error { return a.c.Ack(a.wrap(d.msg)) })
			open = slices.DeleteFunc(open, func(o *delivery) bool { return o == d })
		}
	}
	clear(a.open)
}

// ackTo acknowledges all messages of a partition up to d. If one of them was never delivered, it is lost.
func (a *randomApp) ackTo(d *delivery) {
	err := a.calls("AckCumulative", func() error {
		switch way := a.pairs.IntN(4); {
		case !a.Wide || way > 1 || a.Wrap != unwrapped:
			return a.c.AckCumulative(a.wrap(d.msg))
		case way == 0 && len(a.all()) == 1:
			id, err := pulsar.DeserializeMessageID(d.msg.ID().Serialize())
			if err != nil {
				return err
			}
			return a.c.AckIDCumulative(id)
		default:
			return a.c.AckIDCumulative(d.msg.ID())
		}
	})
	if err != nil {
		a.settled(d, err)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.published[d.f.partition][:d.f.place+1] {
		f := a.fates[p.n]
		if f.handled == 0 && !f.lost && f.letters == 0 {
			f.lost = true
			a.faultLocked("message %d is LOST: the cumulative acknowledgement of message %d covers it, but it was never handed out: %v", p.n, d.n, f)
		}
		a.settleLocked(f)
		f.dead = false // its ack timeout does not end, so it becomes no dead letter
	}
	a.open[d.f.partition] = slices.DeleteFunc(a.open[d.f.partition], func(o *delivery) bool { return o.f.place <= d.f.place })
}

// watchMemory checks, until ctx is done, that a consumer keeps no more in memory than its limit.
func (r *randomRun) watchMemory(ctx context.Context, c *redelivery.Consumer, k int) {
	limit := int64(redelivery.DefaultMemoryLimit)
	if r.MemoryLimit >= 0 {
		limit = r.MemoryLimit
	}
	if r.Retry || r.MaxDeliveries > 0 {
		limit = max(limit, 1<<20) // for messages that will be published
	}
	if r.Chan {
		limit += 16 << 10 // for the message that waits to enter the channel, with its batch
	}
	for reported := false; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		end := r.guard.begin("Stats")
		s := c.Stats()
		if end(); (s.BufferedBytes < 0 || s.BufferedBytes > limit || s.Waiting < 0) && !reported {
			reported = true
			r.fault("consumer %d keeps %d bytes, want 0 to %d: %+v", k, s.BufferedBytes, limit, s)
		}
	}
}
