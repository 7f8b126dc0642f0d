package virtual

import (
	"slices"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Elect makes the next consumer of a Failover subscription the active one. That consumer gets the messages that the
// previous one has not acknowledged.
func (b *Broker) Elect() {
	b.mu.Lock()
	if len(b.consumers) < 2 || b.consumers[0].opts.Type != pulsar.Failover {
		b.mu.Unlock()
		return
	}
	old := b.consumers[0]
	b.consumers = append(b.consumers[1:], old)
	old.takeBack()
	b.mu.Unlock()
	b.elected()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deliverAll()
}

// elected notifies the consumers of a Failover subscription which of them is active, if that has changed.
func (b *Broker) elected() {
	b.mu.Lock()
	var notifications []func()
	for i, c := range slices.Backward(b.consumers) {
		active := i == 0
		if c.opts.EventListener == nil || c.notified && c.active == active {
			continue
		}
		c.notified, c.active = true, active
		for _, topic := range b.topics {
			if active {
				notifications = append(notifications, func() { c.opts.EventListener.BecameActive(c, topic, 0) })
			} else {
				notifications = append(notifications, func() { c.opts.EventListener.BecameInactive(c, topic, 0) })
			}
		}
	}
	b.mu.Unlock()
	for _, f := range notifications {
		f()
	}
}
