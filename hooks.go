package redelivery

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/backoff"
)

// hooks are what an inner consumer tells: as its interceptor, as its listener, and by asking for a backoff. They stand between it and the
// caller's, which see the Consumer. BeforeConsume is called when a message is handed to the application, not when it is prefetched, so
// that it sees what the application sees.
type hooks struct {
	of                 pulsar.ConsumerInterceptors
	nacksUndecryptable bool          // what cannot be decrypted is nacked by the Consumer
	tick               time.Duration // of requests; 0 if unknown
	children           int           // one for each topic, that end before the consumer is of no use; 0 of a pattern, which goes on
	pattern            bool          // so that topics may vanish
	redeliversAll      bool          // the subscription is Exclusive or Failover

	outer   atomic.Pointer[Consumer]
	closes  atomic.Int32 // of the inner consumer and those that it is made of
	telling atomic.Int32 // calls of the caller's interceptors that are running
	lost    atomic.Int64 // how often a connection was, or a topic became this consumer's, as long as what is received may tell more of it
	later   postponed    // what the interceptors are told of messages that are being settled

	mu           sync.Mutex
	inactive     map[string]bool // topics that are another consumer's, of which that was told before Subscribe returned
	leaving      bool            // GiveBack closes the inner consumer
	over         int             // children that are closed, though the Consumer is not
	lastAsk      time.Time
	reconnecting map[*reconnection]time.Time // until when each goes on, if upstream does not ask for another attempt
}

// consumer is what the caller's interceptors get in place of inner.
func (h *hooks) consumer(inner pulsar.Consumer) pulsar.Consumer {
	if outer := h.outer.Load(); outer != nil {
		return outer
	}
	return inner
}

// BeforeConsume is called when a message was received.
func (h *hooks) BeforeConsume(cm pulsar.ConsumerMessage) {
	lost := h.lost.Load()
	if lost == 0 {
		return
	}
	if outer := h.outer.Load(); outer != nil && isTracked(cm.Message) && !outer.ledger.Received(cm.Topic(), cm.ID()) {
		h.lost.CompareAndSwap(lost, 0)
	}
}

// tell calls the caller's interceptors, which may call Close: that must not wait for them then.
func (h *hooks) tell(call func()) {
	h.telling.Add(1)
	defer h.telling.Add(-1)
	call()
}

// OnAcknowledge is called while a message is acknowledged.
func (h *hooks) OnAcknowledge(consumer pulsar.Consumer, id pulsar.MessageID) {
	if len(h.of) == 0 {
		return
	}
	tell := func() { h.of.OnAcknowledge(h.consumer(consumer), id) }
	if !h.later.add(id, tell) {
		h.tell(tell)
	}
}

// postpone has the interceptors told that messages were acknowledged once these are settled, when the function that it returns is
// called: they may acknowledge the same messages, which would wait for that.
func (h *hooks) postpone(ids ...pulsar.MessageID) (tell func()) {
	if len(h.of) == 0 {
		return func() {}
	}
	for _, id := range ids {
		h.later.begin(id)
	}
	return func() {
		var todo []func()
		for _, id := range ids {
			todo = append(todo, h.later.end(id)...)
		}
		h.tellAll(todo)
	}
}

// tellAll makes all calls, though one panics.
func (h *hooks) tellAll(calls []func()) {
	if len(calls) > 0 {
		defer h.tellAll(calls[1:])
		h.tell(calls[0])
	}
}

// OnNegativeAcksSend is called by the goroutine that sends requests, which Close waits for.
func (h *hooks) OnNegativeAcksSend(consumer pulsar.Consumer, ids []pulsar.MessageID) {
	outer := h.outer.Load()
	if outer == nil || len(h.of) == 0 {
		return
	}
	outer.start(&outer.requests, func(context.Context) {
		h.tell(func() { h.of.OnNegativeAcksSend(outer, ids) })
	})
}

// OnConsumerClose is called for each child. Upstream goes on without one that gave up, and when it was the last it does not
// tell.
func (h *hooks) OnConsumerClose(consumer pulsar.Consumer, err error) {
	if h.isLeaving() {
		return
	}
	h.closes.Add(1)
	if outer := h.outer.Load(); outer != nil && outer.life.ended.Err() == nil {
		outer.ledger.Gone(consumer)
		if err == nil || !(h.pattern && strings.Contains(err.Error(), "TopicNotFound")) {
			h.mu.Lock()
			h.over++
			last := h.over == h.children
			h.mu.Unlock()
			if last && outer.goroutines.Enter() {
				outer.life.end()
				go func() {
					defer outer.goroutines.Leave()
					outer.current().Close()
				}()
			}
			if err != nil { // else somebody else closed it, or its client
				what, why := "staying connected", fmt.Errorf("%w", err) // without upstream's stack
				if !last {
					what += " to one of the topics"
				}
				go outer.safely(func() { // what is left to tell is skipped when the Consumer ends
					outer.report(what, why)
					outer.tellFailed("receive", why)
				})
			}
		}
	}
	tell := func() { h.of.OnConsumerClose(h.consumer(consumer), err) }
	if outer := h.outer.Load(); outer != nil { // its panic must not keep Close from what is left to do
		h.tell(func() { outer.safely(tell) })
		return
	}
	h.tell(tell)
}

// mayBeClosed reports whether the inner consumer may have closed itself. One that Wrap got does not tell.
func (h *hooks) mayBeClosed() bool { return h.tick == 0 || h.closes.Load() > 0 }

// backoffPolicy returns what upstream calls at the beginning of each reconnection: the one public sign of it.
func (h *hooks) backoffPolicy(of func() backoff.Policy) func() backoff.Policy {
	if of == nil {
		of = backoff.NewDefaultBackoff
	}
	return func() backoff.Policy {
		outer := h.outer.Load()
		if outer == nil || isQuery() {
			return of()
		}
		outer.intake.Disconnected()
		outer.ledger.Disconnected()
		h.lost.Add(1)
		outer.lost("", LostConnection)
		r := &reconnection{Policy: of(), hooks: h}
		h.reconnects(r, attemptTime)
		return r
	}
}

// isQuery reports whether it is called by GetLastMessageIDs, be it upstream's own, which asks for a backoff in the same goroutine, each time.
func isQuery() bool {
	var callers [32]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, "onsumer).GetLastMessageIDs") {
			return true
		}
		if !more {
			return false
		}
	}
}

// reconnection is the backoff of one reconnection, which upstream resets when it has succeeded.
type reconnection struct {
	backoff.Policy
	hooks *hooks
	once  sync.Once
}

func (r *reconnection) Next() time.Duration {
	d := r.Policy.Next()
	r.hooks.reconnects(r, d+attemptTime)
	return d
}

func (r *reconnection) Reset() {
	r.once.Do(func() {
		outer := r.hooks.outer.Load()
		outer.intake.Connected()
		outer.ledger.Connected()
		outer.ackAllAgain()
	})
	r.hooks.mu.Lock()
	delete(r.hooks.reconnecting, r)
	r.hooks.mu.Unlock()
	r.Policy.Reset()
}

// attemptTime is how long one attempt to connect may take. If the topic is gone, the attempt ends without an error.
const attemptTime = time.Minute

// leaves notes that GiveBack begins to close the inner consumer, or has done so: what is received next comes by another connection.
func (h *hooks) leaves(begins bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaving, h.over, h.reconnecting = begins, 0, nil
	h.lost.Add(1)
}

func (h *hooks) isLeaving() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leaving
}

// reconnects notes that a reconnection goes on for some time.
func (h *hooks) reconnects(r *reconnection, d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reconnecting == nil {
		h.reconnecting = map[*reconnection]time.Time{}
	}
	h.forgetVanished()
	h.reconnecting[r] = time.Now().Add(d)
}

// reconnections returns how many go on.
func (h *hooks) reconnections() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgetVanished()
	return len(h.reconnecting)
}

// forgetVanished forgets reconnections that have ended untold, as those of topics that vanished. The caller holds mu.
func (h *hooks) forgetVanished() {
	maps.DeleteFunc(h.reconnecting, func(_ *reconnection, until time.Time) bool { return time.Now().After(until) })
}

// asked notes a request.
func (h *hooks) asked() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastAsk = time.Now()
}

// flush waits until the inner consumer has sent its requests, which takes a tick: upstream can deadlock when it is
// closed while it flushes its nacks.
func (h *hooks) flush() {
	h.mu.Lock()
	wait := time.Until(h.lastAsk.Add(2*h.tick + 20*time.Millisecond))
	asked := !h.lastAsk.IsZero()
	h.mu.Unlock()
	if asked && wait > 0 {
		time.Sleep(min(wait, time.Second))
	}
}
