package suite

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
)

// randomApp is one goroutine of an application.
type randomApp struct {
	*randomRun
	c    *redelivery.Consumer
	k    int // which consumer
	rng  *rand.Rand
	list []*delivery // to be acknowledged together
}

// delivery is a message that an application has.
type delivery struct {
	msg     pulsar.Message
	f       *fate
	n, hand int
	timeout time.Time // not before; zero if there is none
}

func (r *randomRun) work(ctx context.Context, c *redelivery.Consumer, k int, which uint64) {
	a := &randomApp{randomRun: r, c: c, k: k, rng: rand.New(rand.NewPCG(r.Seed, 1000+which))}
	for ctx.Err() == nil {
		began := time.Now()
		short, cancel := context.WithTimeout(ctx, ms(1+a.rng.IntN(50)))
		msg, err := takeBy(short, c, r.Chan)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
			a.nothing()
			a.flush()
			continue
		case err != nil || msg == nil: // closed
			return
		}
		if d, fails := a.take(msg, began); fails {
			a.fail(d)
		} else {
			a.settle(d)
		}
	}
	a.flush()
}

// nothing notes that there was nothing to receive.
func (a *randomApp) nothing() {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := &a.lulls[a.k]
	if q.calls++; q.calls >= 3 && time.Now().After(q.last) { // of few no more may be said than that the machine is slow
		q.last = time.Now()
	}
}

// quietSince returns for how long after a time there was nothing to receive for any consumer. The caller holds mu.
func (r *randomRun) quietSince(t time.Time) time.Duration {
	since := r.lulls[0].last.Sub(t)
	for _, q := range r.lulls {
		since = min(since, q.last.Sub(t))
	}
	return since
}

// take notes that the application has a message, which Receive was called for at a time.
func (a *randomApp) take(msg pulsar.Message, began time.Time) (d *delivery, fails bool) {
	now, n, count := time.Now(), a.number(msg), a.c.RedeliveryCount(msg)
	a.mu.Lock()
	f := a.fates[n]
	switch {
	case f.consumer == a.k && now.Before(f.due) && !a.MayFork():
		a.wrongLocked("message %d is early by %v: %+v", n, f.due.Sub(now), f)
	case !f.settled.IsZero() && began.After(f.settled) && !a.Multiple() && !f.twice:
		a.wrongLocked("message %d comes %v after Ack, with count %d: %+v", n, began.Sub(f.settled), count, f)
	case !f.due.IsZero() && a.quietSince(f.due) > 15*time.Second:
		a.wrongLocked("message %d is late by %v in consumer %d: %+v", n, now.Sub(f.due), a.k, f)
	case f.dead && a.Exact():
		a.wrongLocked("message %d comes as a dead letter: %+v", n, f)
	case a.Exact() && !a.Retry && a.Timeout == 0 && int(count) != f.handled:
		a.wrongLocked("message %d has count %d: %+v", n, count, f)
	}
	a.lulls[a.k].calls = 0
	f.handled++
	f.consumer, f.due, f.dead = a.k, time.Time{}, false
	d = &delivery{msg: msg, f: f, n: n, hand: f.handled}
	if a.Timeout > 0 {
		d.timeout = began.Add(a.Timeout + a.TimeoutDelay)
		f.due = d.timeout
	}
	if fails = f.settled.IsZero() && (f.failures < f.fails || f.fails < 0); fails {
		f.failures++
	}
	a.mu.Unlock()
	pause := time.Duration(a.rng.IntN(3)) * time.Millisecond
	if a.Slow && a.rng.IntN(10) == 0 {
		pause = ms(a.rng.IntN(1500))
	}
	time.Sleep(pause)
	return d, fails
}

// later calls what has a message come again after a delay.
func (a *randomApp) later(d *delivery, delay time.Duration, call func() error) error {
	set := func(due time.Time) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if d.f.handled == d.hand {
			d.f.due = due
		}
	}
	due := time.Now().Add(delay)
	if !d.timeout.IsZero() && d.timeout.Before(due) {
		set(d.timeout) // which may be over before the call
	} else {
		set(due)
	}
	err := call()
	if err == nil && time.Now().Before(d.timeout) {
		set(due)
	}
	return err
}

// fail fails on a message in one of the ways there are.
func (a *randomApp) fail(d *delivery) {
	info, err := a.c.Delivery(d.msg)
	if err != nil {
		return // closed
	}
	a.mu.Lock()
	d.f.dead = a.MaxDeliveries > 0 && info.Last && d.f.handled == d.hand
	a.mu.Unlock()
	way := a.rng.IntN(8)
	switch {
	case way == 0:
		_ = a.later(d, info.NackDelay, func() error { a.c.NackID(d.msg.ID()); return nil })
	case way == 1:
		delay := ms(a.rng.IntN(500))
		_ = a.later(d, delay, func() error { return a.c.NackWithDelay(d.msg, delay) })
	case way == 2 && a.Timeout > 0: // nothing is said
	case way == 3 && a.Timeout > 0:
		_ = a.later(d, a.Timeout+a.TimeoutDelay, func() error { return a.c.InProgress(d.msg) })
	case way == 4 && a.Retry && d.f.fails > 0:
		delay := ms(100 + a.rng.IntN(500))
		err := a.later(d, delay, func() error { return a.c.ReconsumeLaterAfter(context.Background(), d.msg, delay, nil) })
		if err != nil && !errors.Is(err, redelivery.ErrClosed) {
			a.mu.Lock()
			d.f.twice, d.f.due = true, time.Time{}
			a.mu.Unlock()
			a.c.Nack(d.msg)
		}
	case way == 5:
		_ = a.later(d, info.NackDelay, func() error { a.c.Nack(d.msg); return nil })
		time.Sleep(ms(a.rng.IntN(20)))
		a.c.Nack(d.msg)
	case way == 6 && a.RetryFrom == 0 && d.f.fails > 0: // and thinks better of it
		_ = a.later(d, info.NackDelay, func() error { a.c.Nack(d.msg); return nil })
		time.Sleep(ms(a.rng.IntN(10)))
		if !info.Last {
			a.ack(d, func() error { return a.c.Ack(d.msg) })
		}
	default:
		_ = a.later(d, info.NackDelay, func() error { a.c.Nack(d.msg); return nil })
	}
}

// settle acknowledges a message in one of the ways there are.
func (a *randomApp) settle(d *delivery) {
	switch way := a.rng.IntN(6); {
	case a.Cumulative && way < 2:
		a.ackTo(d)
	case way == 2 && len(a.all()) == 1 && !a.Retry:
		id, err := pulsar.DeserializeMessageID(d.msg.ID().Serialize())
		if err != nil {
			a.breaks("%v", err)
			return
		}
		a.ack(d, func() error { return a.c.AckID(id) })
	case way == 3:
		a.ack(d, func() error { return a.c.AckID(d.msg.ID()) })
		a.ack(d, func() error { return a.c.Ack(d.msg) })
	case way == 4:
		if a.list = append(a.list, d); len(a.list) == 5 {
			a.flush()
		}
	default:
		a.ack(d, func() error { return a.c.Ack(d.msg) })
	}
}

func (a *randomApp) settled(d *delivery, err error) {
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		if d.f.settled.IsZero() {
			d.f.settled = time.Now()
		}
		d.f.twice = d.f.twice || a.Retry && d.f.handled != d.hand // whoever had it after that may have moved it to the retry topic
		return
	}
	if !errors.Is(err, redelivery.ErrClosed) { // it is to come again
		a.mu.Lock()
		d.f.due = time.Time{}
		a.mu.Unlock()
		a.c.Nack(d.msg)
	}
}

func (a *randomApp) ack(d *delivery, call func() error) { a.settled(d, call()) }

// flush acknowledges what is to be acknowledged together.
func (a *randomApp) flush() {
	list := a.list
	a.list = nil
	if len(list) == 0 {
		return
	}
	var ids []pulsar.MessageID
	for _, d := range list {
		ids = append(ids, d.msg.ID())
	}
	err := a.c.AckIDList(ids)
	var failed pulsar.AckError
	some := errors.As(err, &failed)
	for i, d := range list {
		if err := err; some {
			a.settled(d, failed[ids[i]])
		} else {
			a.settled(d, err)
		}
	}
}

// ackTo acknowledges all messages of a partition up to one.
func (a *randomApp) ackTo(d *delivery) {
	if err := a.c.AckCumulative(d.msg); err != nil {
		a.settled(d, err)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, partition := range a.published {
		at := -1
		for i, p := range partition {
			if p.n == d.n {
				at = i
			}
		}
		if at < 0 {
			continue
		}
		for _, p := range partition {
			if f := a.fates[p.n]; !partition[at].before(p) && f.settled.IsZero() {
				f.settled = time.Now()
			}
		}
	}
}

// before reports whether a message is before another of its partition.
func (p published) before(other published) bool {
	a, b := p.id, other.id
	if a.LedgerID() != b.LedgerID() {
		return a.LedgerID() < b.LedgerID()
	}
	if a.EntryID() != b.EntryID() {
		return a.EntryID() < b.EntryID()
	}
	return a.BatchIdx() < b.BatchIdx()
}
