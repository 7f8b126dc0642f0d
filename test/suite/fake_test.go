package suite

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
)

// fake is a consumer without a broker: it delivers what the test sends to it and notes what it is asked to do.
type fake struct {
	pulsar.Consumer // of a kind that the tests do not call
	ch              chan pulsar.ConsumerMessage
	queue           chan pulsar.ConsumerMessage // what goes to ch
	closed          chan struct{}
	once            sync.Once
	probes          atomic.Int32 // calls of Receive

	mu     sync.Mutex
	acked  []pulsar.MessageID
	asked  []pulsar.MessageID
	ackErr error
	gate   chan struct{} // if not nil, an acknowledgement waits for it
	panics bool          // acknowledgements do
}

// newPrepared returns a Consumer around a fake one, of which it knows the subscription type.
func newPrepared(t testing.TB, kind pulsar.SubscriptionType, options ...redelivery.Option) (*redelivery.Consumer, *fake) {
	inner := newFake()
	c, _ := subscribeFake(t, inner, pulsar.ConsumerOptions{Type: kind}, options...)
	return c, inner
}

// subscribeFake returns a Consumer of inner, and what inner was subscribed with.
func subscribeFake(t testing.TB, inner *fake, opts pulsar.ConsumerOptions, options ...redelivery.Option) (*redelivery.Consumer, pulsar.ConsumerOptions) {
	t.Helper()
	var prepared pulsar.ConsumerOptions
	c, err := redelivery.SubscribeWith(func(o pulsar.ConsumerOptions) (pulsar.Consumer, error) {
		prepared = o
		inner.prefetch(t, o.MessageChannel)
		return inner, nil
	}, opts, append([]redelivery.Option{redelivery.WithLogger(logtest.Logger(t))}, options...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c, prepared
}

// errRefused is what refuse returns, so that SubscribeWith tells what it prepared and no more.
var errRefused = errors.New("refused")

// prepared returns what SubscribeWith subscribes with.
func prepared(opts pulsar.ConsumerOptions, options ...redelivery.Option) (prepared pulsar.ConsumerOptions, err error) {
	_, err = redelivery.SubscribeWith(func(o pulsar.ConsumerOptions) (pulsar.Consumer, error) {
		prepared = o
		return nil, errRefused
	}, opts, options...)
	if errors.Is(err, errRefused) {
		err = nil
	}
	return prepared, err
}

func newFake() *fake {
	ch := make(chan pulsar.ConsumerMessage, 100)
	return &fake{ch: ch, queue: ch, closed: make(chan struct{})}
}

// prefetch delivers to ch what the test sends to the fake, as upstream's dispatcher does.
func (f *fake) prefetch(t testing.TB, ch chan pulsar.ConsumerMessage) {
	f.ch = ch
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		for {
			select {
			case cm := <-f.queue:
				select {
				case ch <- cm:
				case <-stop:
					return
				}
			case <-stop:
				return
			}
		}
	}()
}

var errFakeClosed = errors.New("fake: closed")

func (f *fake) Name() string                           { return "fake" }
func (f *fake) Subscription() string                   { return sub }
func (f *fake) Chan() <-chan pulsar.ConsumerMessage    { return f.ch }
func (f *fake) Close()                                 { f.once.Do(func() { close(f.closed) }) }
func (f *fake) Ack(m pulsar.Message) error             { return f.AckID(m.ID()) }
func (f *fake) AckIDCumulative(pulsar.MessageID) error { return nil }

func (f *fake) AckID(id pulsar.MessageID) error {
	if f.gate != nil {
		<-f.gate
	}
	if f.panics {
		panic("fake")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ackErr == nil {
		f.acked = append(f.acked, id)
	}
	return f.ackErr
}

func (f *fake) AckIDList(ids []pulsar.MessageID) error {
	for _, id := range ids {
		_ = f.AckID(id)
	}
	return nil
}

func (f *fake) AckWithTxn(m pulsar.Message, _ pulsar.Transaction) error { return f.AckID(m.ID()) }

func (f *fake) NackID(id pulsar.MessageID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, id)
}

func (f *fake) Receive(ctx context.Context) (pulsar.Message, error) {
	f.probes.Add(1)
	select {
	case <-f.closed:
		return nil, errFakeClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// requests returns what was asked for.
func (f *fake) requests() []pulsar.MessageID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

// acks returns what was acknowledged.
func (f *fake) acks() []pulsar.MessageID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.acked)
}

// failAcks has acknowledgements fail with err, or succeed if that is nil.
func (f *fake) failAcks(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ackErr = err
}

// forget forgets what was acknowledged and asked for.
func (f *fake) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acked, f.asked = nil, nil
}

// deliver sends entry n, unbatched, as it would come for the first or another time.
func (f *fake) deliver(n int64) pulsar.MessageID {
	id := pulsar.NewMessageID(1, n, 0, 0)
	f.queue <- pulsar.ConsumerMessage{Consumer: f, Message: message{id: id}}
	return id
}

// deliverBatch sends the first message of entry n, a batch of size; unbatched if that is 0.
func (f *fake) deliverBatch(n int64, size int32) {
	id := pulsar.NewMessageID(1, n, 0, 0)
	if size > 0 {
		id = &batchID{id, size}
	}
	f.queue <- pulsar.ConsumerMessage{Consumer: f, Message: message{id: id}}
}

// message is as much of a message as the tests need.
type message struct {
	pulsar.Message
	id    pulsar.MessageID
	count uint32
	topic string
}

func (m message) ID() pulsar.MessageID                            { return m.id }
func (m message) RedeliveryCount() uint32                         { return m.count }
func (m message) Payload() []byte                                 { return []byte("payload") }
func (m message) Topic() string                                   { return m.topic }
func (m message) Properties() map[string]string                   { return nil }
func (m message) PublishTime() time.Time                          { return time.Time{} }
func (m message) GetEncryptionContext() *pulsar.EncryptionContext { return nil }

// foreignID is a message id of somebody's own.
type foreignID struct{ pulsar.MessageID }

// batchID is the id of a message of a batch.
type batchID struct {
	pulsar.MessageID
	size int32
}

func (id *batchID) BatchSize() int32 { return id.size }
