// Package publishing has the code for upstream's producers and for properties of retries that several packages share.
// It also has Notes. A Note belongs to a retry or a dead letter, and has the caller's reason and the publisher's
// decision, for observers.
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

// Note is written by the goroutine that publishes, and read after it has published. Methods of a nil Note do nothing.
type Note struct {
	Topic  string        // topic that the message was published to
	Delay  time.Duration // of a retry
	Dead   bool          // the message was a dead letter
	Reason string        // of a dead letter
	Why    error         // error of a dead letter
}

type noteKey struct{}

// With returns a context with a Note for one message. The Note's reason is that of Because, or Explicit.
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

// For sets the reason of a dead letter, and returns n.
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

// DeadLetter notes that a message goes to a dead letter topic; topic is "" if the message is discarded.
func (n *Note) DeadLetter(topic string, why error) {
	if n != nil {
		n.Topic, n.Dead, n.Why = topic, true, why
	}
}
