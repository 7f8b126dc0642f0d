package redelivery_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
)

// journal notes what an application acknowledged. Any number of goroutines may use it.
type journal struct {
	mu    sync.Mutex
	acked map[string]int // payloads whose Ack returned nil, and how often
	again []string       // payloads handed out after that
}

func newJournal() *journal { return &journal{acked: map[string]int{}} }

// taken notes that the application has a message, before it does anything with it.
func (j *journal) taken(msg pulsar.Message) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if payload := name(msg); j.acked[payload] > 0 {
		j.again = append(j.again, payload)
	}
}

// done notes that Ack returned nil.
func (j *journal) done(msg pulsar.Message) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.acked[name(msg)]++
}

// name is what tells a test's message from others: its payload up to the first blank.
func name(msg pulsar.Message) string {
	payload, _, _ := strings.Cut(string(msg.Payload()), " ")
	return payload
}

// complete asserts that all of n messages were acknowledged, and that none was handed out after that.
func (j *journal) complete(t testing.TB, n int) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	require.Len(t, j.acked, n, "messages are lost")
	if len(j.again) > 0 {
		require.FailNowf(t, "messages came after Ack had returned nil", "%d of %d, %s first", len(j.again), n, j.again[0])
	}
}

// drain hands every message to handle until none came for quiet.
func drain(t testing.TB, c *redelivery.Consumer, quiet time.Duration, handle func(pulsar.Message)) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), quiet)
		msg, err := c.Receive(ctx)
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			return
		}
		handle(msg)
	}
}

// needsRealBroker skips a test of what the in-process broker does not have, unless PULSAR_URL names a real one.
func needsRealBroker(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("PULSAR_URL") == "" || os.Getenv("PULSAR_ADMIN_URL") == "" {
		t.Skip("the in-process broker has no " + what)
	}
}
