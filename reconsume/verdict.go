package reconsume

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/backoff"
)

const (
	patience = 5 * time.Second        // time without an answer after which ask finds out whether the broker refused
	grace    = 100 * time.Millisecond // time for a producer to notice that its connection was lost
	// A producer's Close that takes longer than prompt may have ended without an answer: upstream stops waiting after
	// the client's OperationTimeout.
	prompt = 2 * time.Second
)

// verdict says whether the broker refused the message that went alone to a producer.
type verdict struct {
	asked       atomic.Bool   // the producer is being closed
	known       chan struct{} // closed when refused is final
	refused     bool
	lastAttempt atomic.Int64 // time of the last attempt to reconnect, in nanoseconds since 1970
}

// watch returns a policy that notes when the producer reconnects.
func (v *verdict) watch(of func() backoff.Policy) func() backoff.Policy {
	if of == nil {
		of = backoff.NewDefaultBackoff
	}
	return func() backoff.Policy {
		v.lastAttempt.Store(time.Now().UnixNano())
		return watched{of(), v}
	}
}

type watched struct {
	backoff.Policy
	v *verdict
}

func (w watched) Next() time.Duration {
	d := w.Policy.Next()
	w.v.lastAttempt.Store(time.Now().Add(d).UnixNano())
	return d
}

// rest returns how much time the broker still has to answer the messages that the client sent again after it had
// reconnected. It is negative if that time is over, or the client did not reconnect.
func (v *verdict) rest() time.Duration {
	return patience - time.Since(time.Unix(0, v.lastAttempt.Load()))
}

// errorOf waits for the verdict, and returns the error of the message that went alone. err is the client's error.
func (v *verdict) errorOf(ctx context.Context, msg *pulsar.ProducerMessage, err error) error {
	if !v.asked.Load() {
		return err
	}
	select {
	case <-v.known:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNoAnswer, context.Cause(ctx))
	}
	if !v.refused {
		return errNoAnswer
	}
	return fmt.Errorf("%w: %v with %d bytes", ErrDelayRefused, msg.DeliverAfter, bytesOf(msg))
}

// ask closes a producer to find out whether the broker refused the only message that has no answer. ctx ends when the
// message has one.
//
// If the broker accepted the message, it answers the message before the close. Otherwise the client returns an error
// for the message. The client does so in two other cases, too: if the connection is lost (the next producer notices
// that), and if the broker does not answer the close in time, for example because it cannot store messages.
func (p *producer) ask(ctx context.Context, m *made) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made != m || p.closed.Err() != nil || ctx.Err() != nil {
		return
	}
	if wait := m.verdict.rest(); wait > 0 {
		time.AfterFunc(wait, func() { p.ask(ctx, m) })
		return
	}
	p.made = nil
	m.verdict.asked.Store(true)
	p.work.Go(func() {
		next, err := p.get(p.closed) // a new producer shows that the broker answers
		if err == nil {
			defer next.calls.Done()
		}
		if err != nil || m.verdict.rest() > 0 {
			close(m.verdict.known)
			m.calls.Wait() // the message may still get its answer
			m.Close()
			return
		}
		before := next.verdict.lastAttempt.Load()
		began := time.Now()
		m.Close()
		answered := time.Since(began) < prompt
		time.Sleep(grace)
		m.verdict.refused = answered && next.verdict.lastAttempt.Load() == before
		close(m.verdict.known)
	})
}
