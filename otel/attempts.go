package otelredelivery

import (
	"sync"

	"github.com/apache/pulsar-client-go/pulsar"
	"go.opentelemetry.io/otel/trace"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// maxAttempts is how many failed attempts are remembered.
const maxAttempts = 10_000

// attempts remembers the last failed attempts at messages, so that the next attempts can be linked to them. The zero
// value is ready to use. It is safe for concurrent use.
type attempts struct {
	mu    sync.Mutex
	spans map[message]attempt
	order [maxAttempts]message // a ring: the newest attempt overwrites the oldest
	next  int
}

// attempt is the last failed attempt at a message. index is where attempts.order has the message for this attempt. If
// attempts.order has the message at other indices, too, these are of earlier attempts, and do not count.
type attempt struct {
	trace.SpanContext
	index int
}

// message identifies a message on one subscription, by the ID of its first publication.
type message struct{ topic, subscription, id string }

// originOf returns the first publication of a message. Retries and dead letters name it in their properties.
func originOf(msg pulsar.Message, subscription string) message {
	props := msg.Properties()
	if id := props[pulsar.SysPropertyOriginMessageID]; id != "" {
		return message{topicname.Base(props[pulsar.SysPropertyRealTopic]), subscription, id}
	}
	return message{topicname.Base(msg.Topic()), subscription, publishing.OriginID(msg)}
}

func (a *attempts) remember(msg pulsar.Message, subscription string, span trace.SpanContext) {
	key := originOf(msg, subscription)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.spans == nil {
		a.spans = map[message]attempt{}
	}
	if oldest := a.order[a.next]; a.spans[oldest].index == a.next {
		delete(a.spans, oldest)
	}
	a.order[a.next], a.spans[key] = key, attempt{span, a.next}
	a.next = (a.next + 1) % maxAttempts
}

// last returns the last failed attempt at a message on a subscription. For a dead letter that did not fail on that
// subscription, last returns the last attempt on the subscription that gave the message up.
func (a *attempts) last(msg pulsar.Message, subscription string) trace.SpanContext {
	key := originOf(msg, subscription)
	a.mu.Lock()
	defer a.mu.Unlock()
	if last, ok := a.spans[key]; ok {
		return last.SpanContext
	}
	key.subscription = msg.Properties()[reconsume.PropertyRealSubscription]
	return a.spans[key].SpanContext
}

func (a *attempts) forget(msg pulsar.Message, subscription string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.spans, originOf(msg, subscription))
}
