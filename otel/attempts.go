package otelredelivery

import (
	"sync"

	"github.com/apache/pulsar-client-go/pulsar"
	"go.opentelemetry.io/otel/trace"
)

// maxAttempts is how many failed attempts are remembered.
const maxAttempts = 10_000

// attempts remembers the last failed attempts at messages, so that the next may be linked to them. The zero value is ready to use;
// any number of goroutines may use it.
type attempts struct {
	mu    sync.Mutex
	spans map[string]trace.SpanContext // by the id that the message was published with first
	order [maxAttempts]string          // the oldest is overwritten
	next  int
}

// originOf returns the id that a message was published with first: retries and dead letters tell.
func originOf(msg pulsar.Message) string {
	if id := msg.Properties()[pulsar.SysPropertyOriginMessageID]; id != "" {
		return id
	}
	return msg.ID().String()
}

func (a *attempts) keep(msg pulsar.Message, span trace.SpanContext) {
	id := originOf(msg)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.spans == nil {
		a.spans = map[string]trace.SpanContext{}
	}
	if _, ok := a.spans[id]; !ok {
		delete(a.spans, a.order[a.next])
		a.order[a.next] = id
		a.next = (a.next + 1) % maxAttempts
	}
	a.spans[id] = span
}

func (a *attempts) last(msg pulsar.Message) trace.SpanContext {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.spans[originOf(msg)]
}

func (a *attempts) forget(msg pulsar.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.spans, originOf(msg))
}
