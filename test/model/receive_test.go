package model

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// seek seeks to an earlier position, unless another call is running.
func (r *modelRun) seek() {
	p := r.cons.parts[0]
	r.w.mu.Lock()
	quiet := p.state == live && len(r.cons.parts) == 1
	to := r.w.start
	if n := len(p.sub.entries); n > 0 && r.rng.IntN(2) == 0 {
		to = p.sub.entries[r.rng.IntN(n)].published
	}
	r.w.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !quiet || r.calls > 0 || r.seeking {
		return
	}
	r.calls++
	r.seeking = true
	r.w.note("seeks to %v", to.Sub(r.w.start))
	go func() {
		defer r.done()
		var err error
		if to.Equal(r.w.start) {
			err = r.c.Seek(pulsar.EarliestMessageID())
		} else {
			err = r.c.SeekByTime(to)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.seeking = false
		if err != nil {
			if !r.closed {
				r.w.fail("Seek: %v", err)
			}
			return
		}
		r.w.note("has sought")
		r.known, r.order, r.sought = map[modelKey]*modelExpected{}, nil, time.Now()
	}()
}

// patience returns a context for a call that waits for a message, its cancel function, and whether the context is
// already done.
func (r *modelRun) patience() (ctx context.Context, cancel func(), done bool) {
	d := time.Duration(r.rng.Int64N(int64(2*r.cfg.Pace + time.Second)))
	n := r.rng.IntN(20)
	if n < 10 {
		ctx, cancel = context.WithTimeout(context.Background(), d)
	} else {
		ctx, cancel = context.WithCancel(context.Background())
		r.w.after(d, cancel)
	}
	done = n%10 == 0 && r.cfg.DoneContexts
	if done {
		cancel()
	}
	return ctx, cancel, done
}

// take receives a message in a new goroutine.
func (r *modelRun) take(ctx context.Context, cancel func(), done bool) {
	r.mu.Lock()
	r.takes++
	r.mu.Unlock()
	channel := r.cfg.Chan && (!r.cfg.Mix || r.rng.IntN(2) == 0)
	ended := make(chan time.Time, 1)
	context.AfterFunc(ctx, func() { ended <- time.Now() })
	go func() {
		defer func() {
			cancel()
			r.mu.Lock()
			r.takes--
			r.mu.Unlock()
			r.w.nudge()
		}()
		began := time.Now()
		msg, err := r.receive(ctx, channel)
		for err == nil && r.cfg.UpTo > 0 && !r.w.failed() && !r.w.calm.Load() {
			r.handed(msg)
			r.upTo(msg)
			began = time.Now()
			msg, err = r.receive(ctx, channel)
		}
		switch {
		case err == nil && done:
			r.w.fail("Receive returned %v although its context was done", msg.ID())
		case err == nil:
			r.handed(msg)
		case r.isClosed():
		case ctx.Err() == nil || !errors.Is(err, ctx.Err()):
			r.w.fail("Receive: %v, its context: %v", err, ctx.Err())
		default:
			if late := min(time.Since(<-ended), time.Since(began)); late > 0 {
				r.w.fail("Receive returned %v after its context was done", late)
			}
		}
	}()
}

func (r *modelRun) receive(ctx context.Context, channel bool) (msg pulsar.Message, err error) {
	if !channel {
		return r.c.Receive(ctx)
	}
	select {
	case cm := <-r.c.Chan():
		if cm.Consumer != pulsar.Consumer(r.c) {
			return nil, fmt.Errorf("the Consumer of a ConsumerMessage is a %T", cm.Consumer)
		}
		return cm.Message, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
