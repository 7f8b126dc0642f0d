package upstream

import "github.com/apache/pulsar-client-go/pulsar"

// BeforeConsume implements pulsar.ConsumerInterceptor.
func (h *Hooks) BeforeConsume(cm pulsar.ConsumerMessage) {
	h.events.Prefetched(cm)
	h.intercept(func() {
		cm.Consumer = h.events.Outer(cm.Consumer)
		h.interceptors.BeforeConsume(cm)
	})
}

// OnAcknowledge implements pulsar.ConsumerInterceptor.
func (h *Hooks) OnAcknowledge(consumer pulsar.Consumer, id pulsar.MessageID) {
	h.intercept(func() { h.interceptors.OnAcknowledge(h.events.Outer(consumer), id) })
}

// OnNegativeAcksSend implements pulsar.ConsumerInterceptor.
func (h *Hooks) OnNegativeAcksSend(consumer pulsar.Consumer, ids []pulsar.MessageID) {
	h.intercept(func() { h.interceptors.OnNegativeAcksSend(h.events.Outer(consumer), ids) })
}

// OnConsumerClose implements pulsar.ConsumerCloseInterceptor.
func (h *Hooks) OnConsumerClose(consumer pulsar.Consumer, err error) {
	h.events.Closed(consumer, err)
	h.intercept(func() { h.interceptors.OnConsumerClose(h.events.Outer(consumer), err) })
}

// BecameActive implements pulsar.ConsumerEventListener.
func (h *Hooks) BecameActive(consumer pulsar.Consumer, topic string, partition int32) {
	h.events.Active(consumer, topic, true)
	if h.listener != nil {
		h.listener.BecameActive(h.events.Outer(consumer), topic, partition)
	}
}

// BecameInactive implements pulsar.ConsumerEventListener.
func (h *Hooks) BecameInactive(consumer pulsar.Consumer, topic string, partition int32) {
	h.events.Active(consumer, topic, false)
	if h.listener != nil {
		h.listener.BecameInactive(h.events.Outer(consumer), topic, partition)
	}
}
