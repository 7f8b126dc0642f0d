// Package waittest has waits with a limit, for tests in real time.
package waittest

import (
	"context"
	"testing"
	"time"
)

// Limit is the longest wait. It is long, since a busy machine must not fail a test, and far below the ten minutes after
// which go test ends all tests of a package.
const Limit = time.Minute

// Next returns the next value of ch, or the zero value if ch is closed. It fails t after Limit. Call it in the
// goroutine of the test.
func Next[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(Limit):
		t.Fatalf("nothing came within %v", Limit)
		panic("unreachable")
	}
}

// Context returns a context that ends with t, or after Limit.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	t.Cleanup(cancel)
	return ctx
}

// ForZeroQueue waits until a zero-queue consumer that was just subscribed takes messages. pulsar-client-go drops a
// message that comes before the consumer's dispatcher has noticed the connection, and gives no sign of that.
func ForZeroQueue() { time.Sleep(500 * time.Millisecond) }
