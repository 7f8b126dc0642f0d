package testkit

import (
	"maps"
	"slices"
	"sync"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Witness is an interceptor that records the consumers with which it is called, and counts the calls. Its zero value is
// ready for use, by any number of goroutines.
type Witness struct {
	mu                      sync.Mutex
	consumers               map[pulsar.Consumer]bool
	consumed, acked, closed int
}

func (w *Witness) BeforeConsume(cm pulsar.ConsumerMessage) {
	w.see(cm.Consumer, func() { w.consumed++ })
}

func (w *Witness) OnAcknowledge(c pulsar.Consumer, _ pulsar.MessageID) {
	w.see(c, func() { w.acked++ })
}

func (w *Witness) OnNegativeAcksSend(c pulsar.Consumer, _ []pulsar.MessageID) {
	w.see(c, func() {})
}

func (w *Witness) OnConsumerClose(c pulsar.Consumer, _ error) {
	w.see(c, func() { w.closed++ })
}

func (w *Witness) see(c pulsar.Consumer, what func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.consumers == nil {
		w.consumers = map[pulsar.Consumer]bool{}
	}
	w.consumers[c] = true
	what()
}

// Seen returns the consumers with which the interceptor was called. It also returns how many messages were consumed and
// acknowledged, and how many consumers were closed.
func (w *Witness) Seen() (consumers []pulsar.Consumer, consumed, acked, closed int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.consumers)), w.consumed, w.acked, w.closed
}

// Callbacks is an interceptor that calls Before before a message is consumed, and Closed when a consumer is closed,
// unless they are nil.
type Callbacks struct {
	Before func()
	Closed func()
}

func (x Callbacks) BeforeConsume(pulsar.ConsumerMessage) {
	if x.Before != nil {
		x.Before()
	}
}

func (x Callbacks) OnAcknowledge(pulsar.Consumer, pulsar.MessageID) {}

func (x Callbacks) OnNegativeAcksSend(pulsar.Consumer, []pulsar.MessageID) {}

func (x Callbacks) OnConsumerClose(pulsar.Consumer, error) {
	if x.Closed != nil {
		x.Closed()
	}
}
