package reconsume_test

import (
	"context"
	cryptorand "crypto/rand"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// broker is a broker with a client and a topic: the one that PULSAR_URL and PULSAR_ADMIN_URL name, or one in this
// process.
type broker struct {
	t         testing.TB
	admin     string
	client    pulsar.Client
	inProcess *pulsartest.Server // nil if the broker is a real one
	topic     string
}

func newBroker(t testing.TB) *broker {
	b := &broker{t: t, admin: os.Getenv("PULSAR_ADMIN_URL"),
		topic: fmt.Sprintf("persistent://public/default/r-%08x", rand.Uint32())}
	url := os.Getenv("PULSAR_URL")
	if url == "" || b.admin == "" {
		b.inProcess = pulsartest.NewServer(t)
		url, b.admin = b.inProcess.URL(), b.inProcess.AdminURL()
	}
	var err error
	b.client, err = pulsar.NewClient(pulsar.ClientOptions{URL: url, Logger: logtest.Client(t)})
	require.NoError(t, err)
	t.Cleanup(b.client.Close)
	return b
}

func (b *broker) callREST(method, path string, body any) {
	b.t.Helper()
	require.NoError(b.t, admin.Call(bg, b.admin, method, path, body, nil))
}

func (b *broker) reconsumer(o reconsume.Options) *reconsume.Reconsumer {
	b.t.Helper()
	o.Topic, o.Subscription = b.topic, "sub"
	r, err := reconsume.New(b.client, o)
	require.NoError(b.t, err)
	b.t.Cleanup(r.Close)
	return r
}

func (b *broker) subscribe(o pulsar.ConsumerOptions) pulsar.Consumer {
	b.t.Helper()
	if o.SubscriptionName == "" {
		o.SubscriptionName = "sub"
	}
	o.SubscriptionInitialPosition = pulsar.SubscriptionPositionEarliest
	c, err := b.client.Subscribe(o)
	require.NoError(b.t, err)
	b.t.Cleanup(c.Close)
	return c
}

// send publishes messages to the topic. Messages with a Value need the schema.
func (b *broker) send(schema pulsar.Schema, msgs ...*pulsar.ProducerMessage) {
	b.t.Helper()
	p, err := b.client.CreateProducer(pulsar.ProducerOptions{Topic: b.topic, Schema: schema})
	require.NoError(b.t, err)
	defer p.Close()
	for _, msg := range msgs {
		p.SendAsync(bg, msg, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage,
			err error) {
			assert.NoError(b.t, err)
		})
	}
	require.NoError(b.t, p.FlushWithCtx(context.Background()))
}

// receive returns the next message with the consumer that it came from.
func (b *broker) receive(c pulsar.Consumer) pulsar.ConsumerMessage {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(bg, 20*time.Second)
	defer cancel()
	msg, err := c.Receive(ctx)
	require.NoError(b.t, err)
	return pulsar.ConsumerMessage{Consumer: c, Message: msg}
}

func (b *broker) receivesNothing(c pulsar.Consumer, limit time.Duration) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(bg, limit)
	defer cancel()
	msg, err := c.Receive(ctx)
	require.ErrorIs(b.t, err, context.DeadlineExceeded, "got %v", msg)
}

func within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(bg, d)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// The broker does not answer a message whose delay it refuses, and upstream's producer reports no later answer either.
// Retries with shorter delays are published all the same.
func TestBrokerThatRefusesADelayTakesShorterOnes(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	if b.inProcess == nil {
		namespace := fmt.Sprintf("public/r-%08x", rand.Uint32())
		b.callREST("PUT", "namespaces/"+namespace, nil)
		b.callREST("POST", "namespaces/"+namespace+"/delayedDelivery",
			map[string]any{"active": true, "tickTime": 1000, "maxDeliveryDelayInMillis": 5000})
		var policy map[string]any
		require.NoError(t, admin.Call(bg, b.admin, "GET", "namespaces/"+namespace+"/delayedDelivery", nil, &policy))
		if policy["maxDeliveryDelayInMillis"] == nil {
			t.Skip("this broker allows every delay, as Pulsar 3.0 does")
		}
		b.topic = "persistent://" + namespace + "/t"
	}
	c := b.subscribe(pulsar.ConsumerOptions{Topic: b.topic, Type: pulsar.Shared})
	retries := b.subscribe(pulsar.ConsumerOptions{Topic: b.topic + "-sub-RETRY", Type: pulsar.Shared})
	b.send(nil, &pulsar.ProducerMessage{Payload: []byte("x")}, &pulsar.ProducerMessage{Payload: []byte("y")})
	r := b.reconsumer(reconsume.Options{})
	x, y := b.receive(c), b.receive(c)
	if b.inProcess != nil {
		b.inProcess.Inject("SEND", b.topic+"-sub-RETRY", 1, pulsartest.Fail("NotAllowedError", "injected"))
	}
	require.ErrorIs(t, r.LaterAfter(within(20*time.Second), x, time.Hour, nil), reconsume.ErrDelayRefused)
	require.NoError(t, r.LaterAfter(within(20*time.Second), y, time.Second, nil))
	require.Equal(t, "y", string(b.receive(retries).Payload()))
	require.NoError(t, r.LaterAfter(within(20*time.Second), x, time.Second, nil))
	require.Equal(t, "x", string(b.receive(retries).Payload()))
}

// As TestBrokerThatRefusesADelayTakesShorterOnes, but with a message that is larger than the topic allows.
func TestBrokerThatRefusesASizeTakesSmallerMessages(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	c := b.subscribe(pulsar.ConsumerOptions{Topic: b.topic, Type: pulsar.Shared})
	retries := b.subscribe(pulsar.ConsumerOptions{Topic: b.topic + "-sub-RETRY", Type: pulsar.Shared})
	if b.inProcess == nil {
		path := strings.Replace(b.topic, "://", "/", 1) + "-sub-RETRY/maxMessageSize"
		b.callREST("POST", path, 6000)
		require.Eventually(t, func() bool {
			var size int
			return admin.Call(bg, b.admin, "GET", path, nil, &size) == nil && size == 6000
		}, 10*time.Second, 100*time.Millisecond)
	}
	large := make([]byte, 8000)
	_, _ = cryptorand.Read(large) // random, so that compression does not make it fit
	b.send(nil, &pulsar.ProducerMessage{Payload: large}, &pulsar.ProducerMessage{Payload: []byte("x")},
		&pulsar.ProducerMessage{Payload: []byte("y")})
	r := b.reconsumer(reconsume.Options{})
	first, x, y := b.receive(c), b.receive(c), b.receive(c)
	if b.inProcess != nil {
		b.inProcess.Inject("SEND", b.topic+"-sub-RETRY", 1, pulsartest.Fail("NotAllowedError", "injected"))
	}
	refused := make(chan error)
	go func() { refused <- r.LaterAfter(within(20*time.Second), first, time.Second, nil) }()
	time.Sleep(time.Second)
	require.NoError(t, r.LaterAfter(within(20*time.Second), x, time.Second, nil))
	require.ErrorIs(t, waittest.Next(t, refused), reconsume.ErrDelayRefused)
	require.NoError(t, r.LaterAfter(within(20*time.Second), y, time.Second, nil))
	for _, payload := range []string{"x", "y"} {
		require.Equal(t, payload, string(b.receive(retries).Payload()))
	}
	b.receivesNothing(retries, time.Second)
}

// Dead letters are published even if the initial subscription exists and has a consumer.
func TestDeadLettersArePublishedThoughTheInitialSubscriptionIsInUse(t *testing.T) {
	t.Parallel()
	for _, kind := range []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Failover, pulsar.KeyShared, pulsar.Shared} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			b := newBroker(t)
			c := b.subscribe(pulsar.ConsumerOptions{Topic: b.topic, Type: pulsar.Shared})
			readers := b.subscribe(pulsar.ConsumerOptions{Topic: b.topic + "-sub-DLQ", SubscriptionName: "readers",
				Type: kind})
			b.send(nil, &pulsar.ProducerMessage{Payload: []byte("x")})
			r := b.reconsumer(reconsume.Options{InitialSubscriptionName: "readers"})
			require.NoError(t, r.DeadLetter(within(20*time.Second), b.receive(c), nil))
			require.Equal(t, "x", string(b.receive(readers).Payload()))
		})
	}
}

// Messages are published in the order in which they were begun, whichever caller waits first.
func TestMessagesArePublishedInTheOrderInWhichTheyBegan(t *testing.T) {
	t.Parallel()
	const n = 2000
	for name, start := range map[string]func(*reconsume.Reconsumer, pulsar.ConsumerMessage) func() error{
		"DLQ": func(r *reconsume.Reconsumer, cm pulsar.ConsumerMessage) func() error {
			return r.Publisher(false).StartDeadLetter(bg, cm, nil, &publishing.Note{})
		},
		"RETRY": func(r *reconsume.Reconsumer, cm pulsar.ConsumerMessage) func() error {
			return r.Publisher(false).StartLater(bg, cm, publishing.Retry{Delay: time.Second, Nacked: true}, &publishing.Note{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t)
			c := b.subscribe(pulsar.ConsumerOptions{Topic: b.topic, Type: pulsar.Exclusive})
			// on an Exclusive subscription the broker delays nothing
			published := b.subscribe(pulsar.ConsumerOptions{Topic: b.topic + "-sub-" + name, Type: pulsar.Exclusive})
			msgs := make([]*pulsar.ProducerMessage, n+1)
			for i := range msgs {
				msgs[i] = &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(i))}
			}
			b.send(nil, msgs...)
			r := b.reconsumer(reconsume.Options{})
			require.NoError(t, start(r, b.receive(c))()) // from now on the Reconsumer knows that the delay is allowed
			var calls sync.WaitGroup
			for range n {
				wait := start(r, b.receive(c))
				calls.Go(func() {
					time.Sleep(rand.N(10 * time.Millisecond))
					assert.NoError(t, wait())
				})
			}
			for i := range n + 1 {
				require.Equal(t, fmt.Sprint(i), string(b.receive(published).Payload()))
			}
			calls.Wait()
		})
	}
}

func TestMessageWithTheLongestDelayWaits(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	c := b.subscribe(pulsar.ConsumerOptions{Topic: b.topic, Type: pulsar.Shared})
	retries := b.subscribe(pulsar.ConsumerOptions{Topic: b.topic + "-sub-RETRY", Type: pulsar.Shared})
	b.send(nil, &pulsar.ProducerMessage{Payload: []byte("x")})
	require.NoError(t, b.reconsumer(reconsume.Options{}).LaterAfter(bg, b.receive(c), math.MaxInt64, nil))
	b.receivesNothing(retries, 3*time.Second)
}
