// Package upstream knows pulsar-client-go: the options of a consumer, its reports, its ids and messages, and how to
// read its channel. Nothing here decides the next state of a message.
//
// pulsar-client-go says little about connections. These are the signs that Hooks turns into Events:
//
//   - It asks BackOffPolicyFunc for a backoff at the start of each reconnection, of any partition; it does not say
//     which.
//   - It calls BeforeConsume for each message in the goroutine that received it, before the message can be read.
//   - It calls the ConsumerEventListener when a partition of a Failover subscription becomes this consumer's, or
//     another's.
//   - It calls OnConsumerClose for each topic that it stops reading, unless the application closed the whole consumer.
package upstream

import (
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Events are called on goroutines of pulsar-client-go, which may hold its locks: the functions must not call
// pulsar-client-go. No function is nil.
type Events struct {
	Lost   func()                                     // a connection was lost, or is about to be
	Sent   func(pulsar.ConsumerMessage)               // the broker sent a message, which cannot be read yet
	Active func(child any, topic string, active bool) // a Failover partition became this consumer's, or another's
	Closed func(child pulsar.Consumer, err error)     // a topic is not read any more
	// the consumer that the application's interceptors and listeners get in place of inner
	Outer func(inner pulsar.Consumer) pulsar.Consumer
}

// Hooks stand between a consumer of pulsar-client-go and the application's interceptors, listener and backoff policy.
type Hooks struct {
	events       Events
	interceptors pulsar.ConsumerInterceptors  // the application's
	listener     pulsar.ConsumerEventListener // the application's; may be nil
	tick         time.Duration                // of requests; 0 if it is unknown

	mu       sync.Mutex
	asked    time.Time                   // of the last request
	telling  int                         // calls of interceptors that are under way
	attempts map[*reconnection]time.Time // when each reconnection counts as ended
	pruned   time.Time                   // when attempts was last pruned
}

// NewHooks returns Hooks that call events.
func NewHooks(events Events) *Hooks {
	return &Hooks{events: events, attempts: map[*reconnection]time.Time{}}
}

// Asked notes that redelivery was requested.
func (h *Hooks) Asked() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = time.Now()
}

// Flush waits until the requests have been sent: two ticks, but a second at most. pulsar-client-go can deadlock when it
// is closed while it sends them.
func (h *Hooks) Flush() {
	h.mu.Lock()
	wait, ever := time.Until(h.asked.Add(2*h.tick+20*time.Millisecond)), !h.asked.IsZero()
	h.mu.Unlock()
	if ever && wait > 0 {
		time.Sleep(min(wait, time.Second))
	}
}

// IsTelling reports whether an interceptor of the application is running.
func (h *Hooks) IsTelling() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.telling > 0
}

// tell calls an interceptor of the application. The interceptor may call Close, which must not wait for the
// interceptor.
func (h *Hooks) tell(call func()) {
	h.mu.Lock()
	h.telling++
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.telling--
		h.mu.Unlock()
	}()
	call()
}
