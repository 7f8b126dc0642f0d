package publishing

import (
	"context"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Large is the number of bytes above which a message may not fit into a batch.
const Large = 1 << 20

// SealedChunk is how many bytes of an encrypted payload are published in one chunk. Upstream leaves no room for the
// bytes that encryption adds: if a message just fits, upstream publishes it without chunks, and then refuses it.
// Upstream does not check the size of chunks. SealedChunk is less than the 5 MiB that brokers allow by default. If a
// broker allows less, payloads up to a few hundred bytes below its limit are still refused.
const SealedChunk = 4 << 20

// InitialSubscription makes the broker create a subscription, at the beginning of the topic, whenever a producer
// connects and there is no such subscription. Only this helps if the topic is deleted: a producer that reconnects by
// itself creates the topic again, and could publish before the topic has a subscription. Upstream sets this private
// option for its own dead letters. InitialSubscription returns false if upstream does not have the option any more.
func InitialSubscription(p *pulsar.ProducerOptions, name string) bool {
	field := reflect.ValueOf(p).Elem().FieldByName("initialSubscriptionName")
	if !field.IsValid() || field.Kind() != reflect.String {
		return false
	}
	*(*string)(unsafe.Pointer(field.UnsafeAddr())) = name
	return true
}

// SendAsync calls the producer's SendAsync, and returns a panic as an error: a producer whose topic is terminated or
// deleted closes itself, even while another goroutine sends.
func SendAsync(ctx context.Context, p pulsar.Producer, msg *pulsar.ProducerMessage,
	answer func(pulsar.MessageID, error)) {
	defer func() {
		if r := recover(); r != nil {
			answer(nil, fmt.Errorf("%w: %v", pulsar.ErrProducerClosed, r))
		}
	}()
	p.SendAsync(ctx, msg, func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { answer(id, err) })
}
