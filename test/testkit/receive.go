package testkit

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/race"
)

// Receive returns the next message. It waits at most fifteen seconds.
func Receive(t testing.TB, c *redelivery.Consumer) pulsar.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	msg, err := c.Receive(ctx)
	require.NoError(t, err)
	return msg
}

// Take receives a message: from Chan if channel is set, and by Receive otherwise.
func Take(ctx context.Context, c pulsar.Consumer, channel bool) (pulsar.Message, error) {
	if !channel {
		return c.Receive(ctx)
	}
	select {
	case cm := <-c.Chan():
		return cm.Message, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ReceiveNothing checks that no message comes for d.
func ReceiveNothing(t testing.TB, c *redelivery.Consumer, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	if msg, err := c.Receive(ctx); err == nil {
		t.Errorf("unexpected message %q, id %v", msg.Payload(), msg.ID())
	}
}

// Patience is how long a test waits for a real broker that has just been started.
const Patience = 30 * time.Second

// Patiently calls Receive repeatedly. If a Receive began while upstream's zero-queue consumer was connecting, the
// consumer's permit may be lost.
func Patiently(t testing.TB, c *redelivery.Consumer) pulsar.Message {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < Patience; {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		msg, err := c.Receive(ctx)
		cancel()
		if err == nil {
			return msg
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	require.FailNow(t, "no message", "%+v", c.Stats())
	return nil
}

// Insist calls subscribe until it succeeds, since a busy broker may not answer within a short OperationTimeout.
func Insist[C any](t testing.TB, subscribe func() (C, error)) (c C) {
	t.Helper()
	err := context.DeadlineExceeded
	for end := time.Now().Add(Patience); err != nil && time.Now().Before(end); {
		if c, err = subscribe(); err != nil {
			time.Sleep(100 * time.Millisecond)
		}
	}
	require.NoError(t, err)
	return c
}

// Name returns a message's payload up to the first blank, which identifies it in a test. It returns "" if the message's
// Payload panics.
func Name(msg pulsar.Message) (payload string) {
	defer func() { _ = recover() }()
	payload, _, _ = strings.Cut(string(msg.Payload()), " ")
	return payload
}

// Drain passes every message to handle until none has come for the time quiet. It waits up to five seconds for the
// first one: on Failover Pulsar waits a second before it sends to a new consumer.
func Drain(t testing.TB, c *redelivery.Consumer, quiet time.Duration, handle func(pulsar.Message)) {
	t.Helper()
	if race.Enabled { // the race detector makes everything slower
		quiet *= 3
	}
	for limit := max(quiet, 5*time.Second); ; limit = quiet {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		msg, err := c.Receive(ctx)
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			return
		}
		handle(msg)
	}
}

// Returns checks that a call returns nil within ten seconds.
func Returns(t testing.TB, call func() error) {
	t.Helper()
	returned := make(chan error, 1)
	go func() { returned <- call() }()
	select {
	case err := <-returned:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		require.FailNow(t, "a call hangs")
	}
}

// ReceiveWithin returns the next message, or an error if none comes within d.
func ReceiveWithin(c *redelivery.Consumer, d time.Duration) (pulsar.Message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return c.Receive(ctx)
}

// Next returns the next message of any consumer. The test fails if none comes in time.
func Next(t testing.TB, c pulsar.Consumer, within time.Duration) pulsar.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	msg, err := c.Receive(ctx)
	require.NoError(t, err)
	return msg
}
