package testkit

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
)

// Fake is a consumer without a broker. It delivers the test's messages, and records acknowledgements and requests.
type Fake struct {
	pulsar.Consumer                             // nil: the tests call no method that Fake lacks
	Channel         chan pulsar.ConsumerMessage // returned by Chan
	Queue           chan pulsar.ConsumerMessage // the test puts messages here
	Closed          chan struct{}               // closed by Close
	once            sync.Once
	Probes          atomic.Int32 // calls of Receive

	mu     sync.Mutex
	acked  []pulsar.MessageID
	asked  []pulsar.MessageID
	ackErr error
	Gate   chan struct{} // if not nil, acknowledgements wait for it
	Panics bool          // acknowledgements panic
}

// WrapFake runs a test with a Consumer around a fake one, in virtual time. The buffer gets the Consumer's log.
func WrapFake(
	t *testing.T, test func(*testing.T, *redelivery.Consumer, *Fake, *bytes.Buffer), options ...redelivery.Option,
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		inner := NewFake()
		var log bytes.Buffer
		c, err := redelivery.Wrap(inner, append(options,
			redelivery.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))...)
		require.NoError(t, err)
		synctest.Wait()
		log.Reset() // drops the line that Wrap logs
		defer c.Close()
		test(t, c, inner, &log)
	})
}

// SubscribeFake returns a Consumer around a Fake. Unlike after Wrap, the Consumer knows its subscription type.
func SubscribeFake(
	t testing.TB, kind pulsar.SubscriptionType, options ...redelivery.Option,
) (*redelivery.Consumer, *Fake) {
	inner := NewFake()
	c, _ := SubscribeFakeWith(t, inner, pulsar.ConsumerOptions{Type: kind}, options...)
	return c, inner
}

// SubscribeFakeWith returns a Consumer around inner, and the options with which it subscribed.
func SubscribeFakeWith(
	t testing.TB, inner *Fake, opts pulsar.ConsumerOptions, options ...redelivery.Option,
) (*redelivery.Consumer, pulsar.ConsumerOptions) {
	t.Helper()
	var prepared pulsar.ConsumerOptions
	c, err := redelivery.SubscribeWith(func(o pulsar.ConsumerOptions) (pulsar.Consumer, error) {
		prepared = o
		inner.Prefetch(t, o.MessageChannel)
		return inner, nil
	}, opts, append([]redelivery.Option{redelivery.WithLogger(logtest.Logger(t))}, options...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c, prepared
}

// errRefused ends a call of SubscribeWith after it has prepared the options.
var errRefused = errors.New("refused")

// PreparedOptions returns the options with which SubscribeWith would subscribe.
func PreparedOptions(
	opts pulsar.ConsumerOptions, options ...redelivery.Option,
) (prepared pulsar.ConsumerOptions, err error) {
	_, err = redelivery.SubscribeWith(func(o pulsar.ConsumerOptions) (pulsar.Consumer, error) {
		prepared = o
		return nil, errRefused
	}, opts, options...)
	if errors.Is(err, errRefused) {
		err = nil
	}
	return prepared, err
}

// NewFake returns a Fake whose queue takes a hundred messages.
func NewFake() *Fake {
	ch := make(chan pulsar.ConsumerMessage, 100)
	return &Fake{Channel: ch, Queue: ch, Closed: make(chan struct{})}
}

// Prefetch delivers the messages of Queue to ch, as upstream's dispatcher does.
func (f *Fake) Prefetch(t testing.TB, ch chan pulsar.ConsumerMessage) {
	f.Channel = ch
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		for {
			select {
			case cm := <-f.Queue:
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

// ErrFakeClosed is returned by Receive of a closed Fake or StandIn.
var ErrFakeClosed = errors.New("fake: closed")

func (f *Fake) Name() string                           { return "fake" }
func (f *Fake) Subscription() string                   { return Subscription }
func (f *Fake) Chan() <-chan pulsar.ConsumerMessage    { return f.Channel }
func (f *Fake) Close()                                 { f.once.Do(func() { close(f.Closed) }) }
func (f *Fake) Ack(m pulsar.Message) error             { return f.AckID(m.ID()) }
func (f *Fake) AckIDCumulative(pulsar.MessageID) error { return nil }
func (f *Fake) Seek(pulsar.MessageID) error            { return nil }
func (f *Fake) Unsubscribe() error                     { return nil }

func (f *Fake) AckID(id pulsar.MessageID) error {
	if f.Gate != nil {
		<-f.Gate
	}
	if f.Panics {
		panic("fake")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ackErr == nil {
		f.acked = append(f.acked, id)
	}
	return f.ackErr
}

func (f *Fake) AckIDList(ids []pulsar.MessageID) error {
	for _, id := range ids {
		_ = f.AckID(id)
	}
	return nil
}

func (f *Fake) AckWithTxn(m pulsar.Message, _ pulsar.Transaction) error { return f.AckID(m.ID()) }

func (f *Fake) NackID(id pulsar.MessageID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, id)
}

func (f *Fake) Receive(ctx context.Context) (pulsar.Message, error) {
	f.Probes.Add(1)
	select {
	case <-f.Closed:
		return nil, ErrFakeClosed
	case cm := <-f.Channel: // even if ctx is done, as in pulsar-client-go
		return cm.Message, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Requests returns the ids of the messages that the Consumer requested.
func (f *Fake) Requests() []pulsar.MessageID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

// Acks returns the messages that were acknowledged.
func (f *Fake) Acks() []pulsar.MessageID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.acked)
}

// FailAcks makes acknowledgements fail with err, or succeed if err is nil.
func (f *Fake) FailAcks(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ackErr = err
}

// Forget forgets acknowledgements and requests.
func (f *Fake) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acked, f.asked = nil, nil
}

// Deliver sends entry n, unbatched. A test may deliver the same entry several times.
func (f *Fake) Deliver(n int64) pulsar.MessageID {
	id := pulsar.NewMessageID(1, n, 0, 0)
	f.Queue <- pulsar.ConsumerMessage{Consumer: f, Message: Message{MessageID: id}}
	return id
}

// DeliverBatch sends the first message of entry n. The entry is a batch of size messages, or unbatched if size is 0.
func (f *Fake) DeliverBatch(n int64, size int32) {
	id := pulsar.NewMessageID(1, n, 0, 0)
	if size > 0 {
		id = &BatchID{id, size}
	}
	f.Queue <- pulsar.ConsumerMessage{Consumer: f, Message: Message{MessageID: id}}
}
