package redelivery

import (
	"sync/atomic"

	"github.com/apache/pulsar-client-go/pulsar"
)

// interceptors stand between the inner consumer and the caller's interceptors, which see the Consumer that Subscribe or
// Wrap returned. BeforeConsume is called when a message is handed to the application, not when it is prefetched, so that
// it sees what the application sees.
type interceptors struct {
	of    pulsar.ConsumerInterceptors
	outer atomic.Pointer[Consumer]

	closes atomic.Int32 // of the inner consumer and those that it is made of
}

// consumer is what the caller's interceptors get in place of inner.
func (x *interceptors) consumer(inner pulsar.Consumer) pulsar.Consumer {
	if outer := x.outer.Load(); outer != nil {
		return outer
	}
	return inner
}

func (x *interceptors) BeforeConsume(pulsar.ConsumerMessage) {}

func (x *interceptors) OnAcknowledge(consumer pulsar.Consumer, id pulsar.MessageID) {
	x.of.OnAcknowledge(x.consumer(consumer), id)
}

func (x *interceptors) OnNegativeAcksSend(consumer pulsar.Consumer, ids []pulsar.MessageID) {
	x.of.OnNegativeAcksSend(x.consumer(consumer), ids)
}

func (x *interceptors) OnConsumerClose(consumer pulsar.Consumer, err error) {
	x.closes.Add(1)
	if outer := x.outer.Load(); err != nil && outer != nil {
		outer.gaveUp(err)
	}
	x.of.OnConsumerClose(x.consumer(consumer), err)
}
