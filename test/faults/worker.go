package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/history"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// crashLimit is the Worker's crash limit.
const crashLimit = 3

// crashed is the exit status of a process that handlePoison ended.
const crashed = 3

var errFails = errors.New("it fails")

func (c *consumer) beginWorker() error {
	options := []worker.Option{worker.WithConcurrency(8), worker.WithLogger(quiet)}
	handlers := map[app]worker.Handler{byKey: c.handleKey, poisoned: c.handlePoison, service: c.serve}
	switch {
	case c.work.App == poisoned:
		options = append(options, worker.WithCrashLimit(crashLimit))
	case c.work.Ordered:
		options = append(options, worker.WithKeyOrder())
	}
	w, err := worker.New(c.Consumer, c.recorded(handlers[c.work.App]), options...)
	if err != nil {
		return err
	}
	c.wg.Go(func() {
		if err := w.Run(c.ctx); err != nil && c.ctx.Err() == nil {
			c.note(history.Event{Kind: history.Disconnected, Note: "the Worker ended: " + err.Error()})
		}
	})
	return nil
}

// recorded returns a handler that calls handle, and records the call and its result.
func (c *consumer) recorded(handle worker.Handler) worker.Handler {
	return func(ctx context.Context, msg pulsar.Message) error {
		count, stale := int(msg.RedeliveryCount()), false
		if d, err := c.Delivery(msg); err == nil {
			stale = d.Lost
		}
		c.deliver(msg, count, stale)
		err := handle(ctx, msg)
		if err != nil {
			c.noteOf(msg, history.Event{Kind: history.Nacked, Delay: c.policy.Next(uint32(count)).Microseconds()})
			return err
		}
		c.noteOf(msg, history.Event{Kind: history.Acking})
		return nil
	}
}

// observeSettled records that the Worker's acknowledgement has returned.
func (c *consumer) observeSettled() redelivery.Option {
	return redelivery.WithObserver(redelivery.Observer{Settled: func(s redelivery.Settled) {
		if s.Outcome == redelivery.Acked && s.Err == nil && s.Message != nil {
			c.noteOf(s.Message, history.Event{Kind: history.Acked})
		}
	}})
}

// observeReceived records messages when the Consumer receives them, which is before a handler gets them.
func (c *consumer) observeReceived() redelivery.Option {
	received := func(e redelivery.Event) {
		if e.Message != nil {
			c.noteOf(e.Message, history.Event{Kind: history.Received})
		}
	}
	return redelivery.WithObserver(redelivery.Observer{Dropped: received,
		Delivered: func(d redelivery.Delivered) { received(d.Event) }})
}

// handlePoison ends the process when it gets the message that is numbered after all others.
func (c *consumer) handlePoison(_ context.Context, msg pulsar.Message) error {
	if number(msg.Payload()) == c.work.Messages {
		c.note(history.Event{Kind: history.Killed})
		os.Exit(crashed)
	}
	time.Sleep(time.Millisecond)
	return nil
}

func (c *consumer) serve(_ context.Context, msg pulsar.Message) error {
	time.Sleep(time.Millisecond)
	if n := number(msg.Payload()); n%100 == 7 || n%10 == 3 && msg.RedeliveryCount() < 2 {
		return errFails
	}
	return nil
}

// keys is the number of keys.
const keys = 50

func (c *consumer) handleKey(_ context.Context, msg pulsar.Message) error {
	now, n := time.Now(), number(msg.Payload())
	time.Sleep(time.Duration(1+n%2) * time.Millisecond)
	down := now.Before(c.work.Healed) && now.Unix()/3%keys == int64(n%keys)
	if down || (n/keys+n)%20 == 7 && msg.RedeliveryCount() < 2 {
		return errFails
	}
	return nil
}
