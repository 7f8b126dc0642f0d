package random

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// randomApp is one goroutine of an application, which receives and settles messages.
type randomApp struct {
	*randomRun
	c    *redelivery.Consumer
	k    int // index of the consumer
	rng  *rand.Rand
	list []*delivery // messages that flush will acknowledge together

	pairs *rand.Rand             // for choices that only wide runs make
	open  map[string][]*delivery // messages to be acknowledged cumulatively, by partition
	count int                    // how many messages were ever put into open
}

// delivery is a message that an application has.
type delivery struct {
	msg     pulsar.Message
	f       *fate
	n, hand int
	timeout time.Time // the earliest end of the ack timeout; zero for none
}

func (r *randomRun) work(ctx context.Context, c *redelivery.Consumer, k int, which uint64) {
	a := &randomApp{randomRun: r, c: c, k: k, rng: rand.New(rand.NewPCG(r.base(), 1000+which)),
		pairs: rand.New(rand.NewPCG(r.base(), 5000+which)), open: map[string][]*delivery{}}
	for ctx.Err() == nil {
		began := time.Now()
		short, cancel := context.WithTimeout(ctx, time.Duration(1+a.rng.IntN(50))*time.Millisecond)
		msg, err := a.receive(short)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
			a.receivedNothing()
			a.flush()
			a.flushOpen()
			continue
		case err != nil || msg == nil: // closed
			return
		}
		d, fails := a.take(msg, began)
		switch a.passEmpty(); {
		case fails:
			a.fail(d)
		case a.Every > 0:
			a.settleTo(d)
		default:
			a.settle(d)
		}
	}
	a.flush()
	a.flushOpen()
}

// receive takes a message from Receive or Chan, as the configuration says.
func (a *randomApp) receive(ctx context.Context) (msg pulsar.Message, err error) {
	channel := a.Chan && (!a.Mix || a.pairs.IntN(2) == 0)
	err = a.calls(fmt.Sprint("Receive, by Chan: ", channel), func() (err error) {
		msg, err = testkit.Take(ctx, a.c, channel)
		return err
	})
	return msg, err
}

// receivedNothing records that a call of Receive returned no message.
func (a *randomApp) receivedNothing() {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := &a.lulls[a.k]
	if !a.paused[a.k].IsZero() {
		return
	}
	q.calls++
	if q.calls >= 3 && time.Now().After(q.last) { // fewer calls may mean only that the computer is slow
		q.last = time.Now()
	}
}

// quietSince returns for how long after t all consumers have waited for messages and got none. The caller holds mu.
func (r *randomRun) quietSince(t time.Time) time.Duration {
	since := r.lulls[0].last.Sub(t)
	for _, q := range r.lulls {
		since = min(since, q.last.Sub(t))
	}
	return since
}

// take records a message that the application received by a call of Receive that began at the time began.
func (a *randomApp) take(msg pulsar.Message, began time.Time) (d *delivery, fails bool) {
	now, n, count := time.Now(), a.number(msg, "to the application"), uint32(0)
	a.checkTopic(a.arranged(n), msg)
	_ = a.calls("RedeliveryCount", func() error { count = a.c.RedeliveryCount(a.wrap(msg)); return nil })
	var info redelivery.Delivery
	if a.Buffer > 0 && a.Timeout > 0 {
		info, _ = a.c.Delivery(msg)
	}
	a.mu.Lock()
	a.takes++
	f := a.fates[n]
	a.checkOrder(n, f)
	a.checkTurn(f)
	if p := a.paused[a.k]; !p.IsZero() && began.Sub(p) > 20*time.Millisecond && a.Buffer == 0 {
		a.faultLocked("message %d comes although the consumer was paused %v before Receive: %v", n, began.Sub(p), f)
	}
	givenUp := f.dead && !a.Exact() // a dead letter comes again if its acknowledgement was lost
	switch {
	case f.consumer == a.k && !givenUp && now.Before(f.due) && !a.MayFork() && !f.twice && !a.MayTimeOutUnseen():
		a.faultLocked("message %d is early by %v: %v", n, f.due.Sub(now), f)
	case !f.settled.IsZero() && began.After(f.settled) && !a.Multiple() && !f.twice && !a.mayBeBuffered(f) && !a.MayFork():
		a.faultLocked("message %d comes %v after Ack, %d messages later, with count %d: %v", n, began.Sub(f.settled), a.takes-f.takes, count, f)
	case a.isOverdue(f):
		a.faultLocked("message %d is late by %v in consumer %d: %v", n, now.Sub(f.due), a.k, f)
	case f.dead && a.Exact():
		a.faultLocked("message %d comes again although it is a dead letter: %v", n, f)
	// the Consumer keeps no count of a settled message
	case a.Exact() && !a.Retry && a.Timeout == 0 && f.settled.IsZero() && int(count) != f.handled:
		a.faultLocked("message %d has count %d: %v", n, count, f)
	}
	a.lulls[a.k].calls = 0
	f.handled++
	f.consumer, f.due, f.dead = a.k, time.Time{}, false
	d = &delivery{msg: msg, f: f, n: n, hand: f.handled}
	if a.Timeout > 0 {
		d.timeout = began.Add(a.Timeout + a.TimeoutDelay)
		if a.Buffer > 0 { // the ack timeout began when the message entered the channel
			d.timeout = info.AckDeadline
		}
		f.due = d.timeout
	}
	fails = f.settled.IsZero() && (f.failures < f.fails || f.fails < 0 || f.stubborn && a.stubborn())
	if fails {
		f.failures++
	}
	a.mu.Unlock()
	pause := time.Duration(a.rng.IntN(3)) * time.Millisecond
	if a.Slow && a.rng.IntN(10) == 0 {
		pause = time.Duration(a.rng.IntN(1500)) * time.Millisecond
	}
	time.Sleep(pause)
	return d, fails
}

// later calls a function that makes a message come again after a delay, and notes when the message is due.
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
		set(d.timeout) // the ack timeout may end before the call
	} else {
		set(due)
	}
	err := a.calls("a nack, InProgress or ReconsumeLaterAfter", call)
	if err == nil && time.Now().Before(d.timeout) {
		set(due)
	}
	return err
}

// fail makes a message fail in a random way.
func (a *randomApp) fail(d *delivery) {
	var info redelivery.Delivery
	msg := a.wrapToNack(d)
	err := a.calls("Delivery", func() (err error) { info, err = a.c.Delivery(msg); return err })
	if errors.Is(err, redelivery.ErrClosed) {
		return
	} else if err != nil {
		a.fault("Delivery of message %d: %v", d.n, err)
	}
	a.mu.Lock()
	d.f.dead = a.MaxDeliveries > 0 && info.Last && d.f.handled == d.hand
	a.mu.Unlock()
	way := a.rng.IntN(8)
	if d.f.stubborn { // other ways may settle the message, or send it to the broker
		way = 7
	}
	switch {
	case way == 0 && !a.mayBeStale(d):
		_ = a.later(d, info.NackDelay, func() error { a.c.NackID(d.msg.ID()); return nil })
	case way == 1:
		delay := time.Duration(a.rng.IntN(500)) * time.Millisecond
		err := a.later(d, delay, func() error { return a.c.NackWithDelay(msg, delay) })
		if err != nil && !errors.Is(err, redelivery.ErrClosed) {
			a.fault("NackWithDelay of message %d: %v", d.n, err)
			a.c.Nack(d.msg)
		}
	case way == 2 && a.Timeout > 0: // the application makes no call
	case way == 3 && a.Timeout > 0:
		_ = a.later(d, a.Timeout+a.TimeoutDelay, func() error { return a.c.InProgress(msg) })
	case way == 4 && a.Retry && d.f.fails > 0:
		delay := time.Duration(100+a.rng.IntN(500)) * time.Millisecond
		err := a.later(d, delay, func() error { return a.c.ReconsumeLaterAfter(context.Background(), msg, delay, nil) })
		if err != nil && !errors.Is(err, redelivery.ErrClosed) {
			a.mu.Lock()
			d.f.twice, d.f.due = true, time.Time{}
			a.mu.Unlock()
			a.c.Nack(d.msg)
		}
	case way == 5:
		_ = a.later(d, info.NackDelay, func() error { a.c.Nack(msg); return nil })
		time.Sleep(time.Duration(a.rng.IntN(20)) * time.Millisecond)
		a.c.Nack(d.msg)
	case way == 6 && a.RetryFrom == 0 && d.f.fails > 0: // a nack, then an acknowledgement
		_ = a.later(d, info.NackDelay, func() error { a.c.Nack(msg); return nil })
		time.Sleep(time.Duration(a.rng.IntN(10)) * time.Millisecond)
		if !info.Last {
			a.ack(d, func() error { return a.c.Ack(a.wrap(d.msg)) })
		}
	default:
		_ = a.later(d, info.NackDelay, func() error { a.c.Nack(msg); return nil })
	}
}

// wrapToNack returns the message that the application passes to Nack.
func (a *randomApp) wrapToNack(d *delivery) pulsar.Message {
	if a.mayBeStale(d) {
		return d.msg
	}
	return a.wrap(d.msg)
}

// mayBeStale reports whether the ack timeout of a delivery may be over, so that there may be a later delivery. The
// Consumer cannot know to which of the two a wrapper or an id belongs.
func (a *randomApp) mayBeStale(d *delivery) bool {
	return a.Timeout > 0 && time.Until(d.timeout) < 100*time.Millisecond
}
