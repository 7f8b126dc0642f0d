// Package publishing carries a note along with the publishing of a retry or a dead letter: the caller's reason,
// and the publisher's decision. Observers get both. It also knows upstream's producers, for all packages that publish.
package publishing

import (
	"context"
	"time"
)

// Why a message became a dead letter, as redelivery.Reason has it.
const (
	MaxDeliveries = "max_deliveries"
	Permanent     = "permanent"
	Explicit      = "explicit"
	Crashed       = "crashed"
	TTL           = "ttl"
)

// Note is written by the goroutine that publishes, and read once that is over. Methods of a nil Note do nothing.
type Note struct {
	Topic  string        // that was published to
	Delay  time.Duration // of a retry
	Dead   bool          // it was a dead letter
	Reason string        // of a dead letter
	Why    error         // likewise
}

type noteKey struct{}

// With returns a context with a Note for the publishing of one message. Its reason is that of Because, or Explicit.
func With(ctx context.Context) (context.Context, *Note) {
	n := &Note{Reason: Explicit}
	if reason, ok := ctx.Value(reasonKey{}).(string); ok {
		n.Reason = reason
	}
	return context.WithValue(ctx, noteKey{}, n), n
}

// Of returns the context's Note, or nil.
func Of(ctx context.Context) *Note {
	if ctx == nil {
		return nil
	}
	n, _ := ctx.Value(noteKey{}).(*Note)
	return n
}

type reasonKey struct{}

// Because returns a context for a dead letter with a reason that its caller knows.
func Because(ctx context.Context, reason string) context.Context {
	return context.WithValue(ctx, reasonKey{}, reason)
}

type begunKey struct{}

// WhenBegun returns a context for a publication: begun is called once the message has its place in the order of those
// that are published.
func WhenBegun(ctx context.Context, begun func()) context.Context {
	return context.WithValue(ctx, begunKey{}, begun)
}

// Begun calls begun.
func Begun(ctx context.Context) {
	if begun, ok := ctx.Value(begunKey{}).(func()); ok {
		begun()
	}
}

// For notes the reason of a dead letter.
func (n *Note) For(reason string) *Note {
	if n != nil {
		n.Reason = reason
	}
	return n
}

// Retry notes that a message goes to a retry topic.
func (n *Note) Retry(topic string, delay time.Duration) {
	if n != nil {
		n.Topic, n.Delay = topic, delay
	}
}

// DeadLetter notes that a message goes to a dead letter topic; "" if it is discarded.
func (n *Note) DeadLetter(topic string, why error) {
	if n != nil {
		n.Topic, n.Dead, n.Why = topic, true, why
	}
}
