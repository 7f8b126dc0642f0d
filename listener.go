package redelivery

import "github.com/apache/pulsar-client-go/pulsar"

// listener is the caller's listener of a Failover subscription, and ours. Of a topic that becomes inactive another consumer
// has the messages.
type listener struct {
	of    pulsar.ConsumerEventListener // may be nil
	hooks *hooks
}

func (l listener) BecameActive(consumer pulsar.Consumer, topic string, partition int32) {
	l.activate(topic, true)
	if l.of != nil {
		l.of.BecameActive(l.hooks.consumer(consumer), topic, partition)
	}
}

func (l listener) BecameInactive(consumer pulsar.Consumer, topic string, partition int32) {
	l.activate(topic, false)
	if l.of != nil {
		l.of.BecameInactive(l.hooks.consumer(consumer), topic, partition)
	}
}

func (l listener) activate(topic string, active bool) {
	outer := l.hooks.toldEarly(topic, active)
	if outer == nil {
		return
	}
	lost := outer.ledger.Activate(topic, active)
	l.hooks.lost.Add(1) // the goroutine that tells receives, too: what it receives from now on was sent afterwards
	if lost {
		outer.lost(topic, LostPartition)
	}
}

// toldEarly notes what is told before Subscribe has returned: then there is no Consumer yet. It returns the Consumer, if there is one.
func (h *hooks) toldEarly(topic string, active bool) *Consumer {
	h.mu.Lock()
	defer h.mu.Unlock()
	outer := h.outer.Load()
	switch {
	case outer != nil:
	case active:
		delete(h.inactive, topic)
	default:
		if h.inactive == nil {
			h.inactive = map[string]bool{}
		}
		h.inactive[topic] = true
	}
	return outer
}

// tellTo has c told from now on, and of what was told until then.
func (h *hooks) tellTo(c *Consumer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for topic := range h.inactive {
		c.ledger.Activate(topic, false)
	}
	h.inactive = nil
	h.outer.Store(c)
}
