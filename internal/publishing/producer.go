package publishing

import (
	"context"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Large is the payload beyond which a batch may have no room for a message.
const Large = 1 << 20

// SealedChunk is how much of an encrypted payload is published in one chunk. Where upstream takes a message to fit
// without chunks, it leaves no room for the bytes that encryption adds, and refuses it then; of chunks it does not ask.
// It is less than the 5 MiB that brokers allow by default; where they allow less, a few hundred bytes below their limit
// remain that are refused.
const SealedChunk = 4 << 20

// InitialSubscription has the broker create a subscription at the beginning of the topic whenever a producer connects
// and there is none. Nothing else comes before a producer that connects again by itself, and by that creates a topic
// that was deleted meanwhile. Upstream sets this option for its own dead letters; others cannot. It reports false if
// upstream has it no longer.
func InitialSubscription(p *pulsar.ProducerOptions, name string) bool {
	field := reflect.ValueOf(p).Elem().FieldByName("initialSubscriptionName")
	if !field.IsValid() || field.Kind() != reflect.String {
		return false
	}
	*(*string)(unsafe.Pointer(field.UnsafeAddr())) = name
	return true
}

// SendAsync is a producer's own, whose panic is an error: a producer whose topic is terminated or deleted closes
// itself, under the send of another goroutine.
func SendAsync(ctx context.Context, p pulsar.Producer, msg *pulsar.ProducerMessage,
	answer func(pulsar.MessageID, error)) {
	defer func() {
		if r := recover(); r != nil {
			answer(nil, fmt.Errorf("%w: %v", pulsar.ErrProducerClosed, r))
		}
	}()
	p.SendAsync(ctx, msg, func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { answer(id, err) })
}
