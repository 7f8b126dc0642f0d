// Package upstream knows pulsar-client-go: the options of a consumer, its reports, its ids and messages, and how to
// read its channel. Nothing here decides the next state of a message.
//
// pulsar-client-go reports little about connections. Hooks turn these signs into Events:
//
//   - It asks BackOffPolicyFunc for a backoff at the start of each reconnection, of any partition; it does not say
//     which.
//   - It calls BeforeConsume for each message in the goroutine that received it, before the message can be read.
//   - It calls the ConsumerEventListener when this consumer, or another one, becomes active on a partition of a
//     Failover subscription.
//   - It calls OnConsumerClose for each topic that it stops reading, with an error unless Close was called.
package upstream

import (
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Events are called on goroutines of pulsar-client-go, which may hold its locks: the functions must not call
// pulsar-client-go. No function is nil.
type Events struct {
	Lost       func()                       // a connection was lost, or is about to be
	Prefetched func(pulsar.ConsumerMessage) // upstream received a message that cannot be read yet
	// this consumer became active, or inactive, on a Failover partition
	Active func(child any, topic string, active bool)
	Closed func(child pulsar.Consumer, err error) // pulsar-client-go has stopped reading a topic
	// the consumer that the application's interceptors and listeners get in place of inner
	Outer func(inner pulsar.Consumer) pulsar.Consumer
}

// Hooks stand between a consumer of pulsar-client-go and the application's interceptors, listener and backoff policy.
type Hooks struct {
	events       Events
	interceptors pulsar.ConsumerInterceptors  // the application's
	listener     pulsar.ConsumerEventListener // the application's; may be nil
	tick         time.Duration                // of requests; 0 if it is unknown

	mu            sync.Mutex
	asked         time.Time // time of the last request
	running       int       // calls of interceptors under way
	reconnections map[*reconnection]bool
}

// NewHooks returns Hooks that call events.
func NewHooks(events Events) *Hooks {
	return &Hooks{events: events, reconnections: map[*reconnection]bool{}}
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

// InterceptorRuns reports whether an interceptor of the application is running.
func (h *Hooks) InterceptorRuns() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.running > 0
}

// intercept calls the application's interceptors, if there are any. An interceptor may call Close, which must not wait
// for the interceptor.
func (h *Hooks) intercept(call func()) {
	if len(h.interceptors) == 0 {
		return
	}
	h.mu.Lock()
	h.running++
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.running--
		h.mu.Unlock()
	}()
	call()
}
