// Package publishing has code that several packages share: for upstream's producers, for reading properties of retries
// and letters (readback.go), and for Notes. A Note belongs to a retry or a dead letter. It has the caller's reason and
// the publisher's decision, for observers.
package publishing

import (
	"context"
	"time"
)

// Why a message became a dead letter: the values of redelivery.Reason.
const (
	MaxDeliveries = "max_deliveries"
	Permanent     = "permanent"
	Explicit      = "explicit"
	Crashed       = "crashed"
	TTL           = "ttl"
)

// Note says where a retry or a dead letter goes, and why. The goroutine that publishes writes it; others read it
// afterwards.
type Note struct {
	Topic  string        // topic that the message was published to; "" if it was discarded
	Delay  time.Duration // of a retry
	Dead   bool          // the message was a dead letter
	Reason string        // of a dead letter
	Why    error         // error of a dead letter
}

// NewNote returns a Note for one message. Its reason is the one that Because gave to ctx, or else Explicit.
func NewNote(ctx context.Context) *Note {
	if reason, ok := ctx.Value(reasonKey{}).(string); ok {
		return &Note{Reason: reason}
	}
	return &Note{Reason: Explicit}
}

type reasonKey struct{}

// Because returns a context for a dead letter with a reason.
func Because(ctx context.Context, reason string) context.Context {
	return context.WithValue(ctx, reasonKey{}, reason)
}

type begunKey struct{}

// WhenBegun returns a context for publishing a message. begun is called once the message has its place in the order of
// published messages.
func WhenBegun(ctx context.Context, begun func()) context.Context {
	return context.WithValue(ctx, begunKey{}, begun)
}

// Begun calls the function begun of WhenBegun.
func Begun(ctx context.Context) {
	if begun, ok := ctx.Value(begunKey{}).(func()); ok {
		begun()
	}
}
