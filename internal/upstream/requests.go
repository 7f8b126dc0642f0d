package upstream

import (
	"context"
	"fmt"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Within calls request, which takes no context, and returns when request returns or ctx ends. If ctx ends first,
// request may run on until the client's operation timeout; then drop gets its result. A panic of request becomes an
// error.
func Within[T any](ctx context.Context, request func() (T, error), drop func(T)) (T, error) {
	type result struct {
		made T
		err  error
	}
	done := make(chan result)
	go func() {
		made, err := safely(request)
		select {
		case done <- result{made, err}:
		case <-ctx.Done():
			if err == nil && drop != nil {
				drop(made)
			}
		}
	}()
	select {
	case r := <-done:
		return r.made, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

func safely[T any](request func() (T, error)) (made T, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return request()
}

// TopicReader is a reader that one goroutine uses. It is closed only when it has the answer to its last request:
// upstream never answers a request of a closed reader.
type TopicReader struct {
	pulsar.Reader
	answered chan struct{} // closed when the last request has its answer; nil before the first request
}

// LastMessageID returns the ID of the topic's last message; its entry is negative if there is none. After an error of
// ctx, the reader can only be closed.
func (r *TopicReader) LastMessageID(ctx context.Context) (pulsar.MessageID, error) {
	answered := make(chan struct{})
	r.answered = answered
	return Within(ctx, func() (pulsar.MessageID, error) {
		defer close(answered)
		return r.GetLastMessageID()
	}, nil)
}

// Close closes the reader. If a request has no answer yet, Close returns at once, and the reader is closed later.
func (r *TopicReader) Close() {
	if r.answered != nil {
		select {
		case <-r.answered:
		default:
			go func() {
				<-r.answered
				r.Reader.Close()
			}()
			return
		}
	}
	r.Reader.Close()
}
