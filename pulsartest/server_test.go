package pulsartest

import (
	"context"
	"flag"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/leaktest"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // the tests mostly wait
		panic(err)
	}
	leaktest.Main(m)
}

func newClient(t testing.TB, url string) pulsar.Client {
	t.Helper()
	c, err := pulsar.NewClient(pulsar.ClientOptions{URL: url, Logger: logtest.Client(t),
		OperationTimeout: 5 * time.Second})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func newProducer(t testing.TB, c pulsar.Client, o pulsar.ProducerOptions) pulsar.Producer {
	t.Helper()
	p, err := c.CreateProducer(o)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func subscribe(t testing.TB, c pulsar.Client, o pulsar.ConsumerOptions) pulsar.Consumer {
	t.Helper()
	k, err := c.Subscribe(o)
	require.NoError(t, err)
	t.Cleanup(k.Close)
	return k
}

func send(t testing.TB, p pulsar.Producer, payload string) pulsar.MessageID {
	t.Helper()
	id, err := trySend(p, payload)
	require.NoError(t, err)
	return id
}

func trySend(p pulsar.Producer, payload string) (pulsar.MessageID, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return p.Send(ctx, &pulsar.ProducerMessage{Payload: []byte(payload)})
}

func receive(t testing.TB, c pulsar.Consumer) pulsar.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	m, err := c.Receive(ctx)
	require.NoError(t, err)
	return m
}

// If the timer of the delay ran on, it would rewind the subscription under the next consumer.
func TestFailoverDelayEndsWithTheLastConsumer(t *testing.T) {
	t.Parallel()
	s := NewServer(t, WithFailoverDelay(100*time.Millisecond))
	c := newClient(t, s.URL())
	k, err := c.Subscribe(pulsar.ConsumerOptions{Topic: "t", SubscriptionName: "s", Type: pulsar.Failover})
	require.NoError(t, err)
	k.Close()
	_, k, p := newPair(t, s)
	send(t, p, "0")
	receive(t, k)
	receiveNothing(t, k)
	require.Equal(t, 1, s.Subscription("t", "s").Delivered)
}

// A consumer of the producer's own client must not get a message before the producer's callback has its ID: upstream's
// TestBatchDelayMessage relies on this order.
func TestASendIsConfirmedBeforeItsMessageComes(t *testing.T) {
	c := newClient(t, NewServer(t).URL())
	p := newProducer(t, c, pulsar.ProducerOptions{Topic: "in", DisableBatching: true})
	sub := subscribe(t, c, pulsar.ConsumerOptions{Topic: "in", SubscriptionName: "s"})
	var confirmed atomic.Int64
	for n := range int64(300) {
		p.SendAsync(t.Context(), &pulsar.ProducerMessage{Payload: []byte("m")},
			func(pulsar.MessageID, *pulsar.ProducerMessage, error) {
				confirmed.Add(1)
			})
		receive(t, sub)
		require.Equal(t, n+1, confirmed.Load())
	}
}

func TestEverySubscriptionTypeRedeliversNackedMessages(t *testing.T) {
	for _, kind := range []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Shared, pulsar.Failover, pulsar.KeyShared} {
		for _, batched := range []bool{false, true} {
			t.Run(fmt.Sprint(kind, batched), func(t *testing.T) {
				t.Parallel()
				s := NewServer(t, WithFailoverDelay(0))
				c := newClient(t, s.URL())
				k := subscribe(t, c, pulsar.ConsumerOptions{Topic: "t", SubscriptionName: "s", Type: kind,
					NackRedeliveryDelay: 100 * time.Millisecond})
				p := newProducer(t, c, pulsar.ProducerOptions{Topic: "t", DisableBatching: !batched})
				for i := range 10 {
					p.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: fmt.Append(nil, i)}, nil)
				}
				require.NoError(t, p.FlushWithCtx(context.Background()))
				for i := range 10 {
					m := receive(t, k)
					require.Equal(t, fmt.Sprint(i), string(m.Payload()))
					k.Nack(m)
				}
				for i := range 10 {
					m := receive(t, k)
					require.Equal(t, fmt.Sprint(i), string(m.Payload()))
					require.NoError(t, k.Ack(m))
				}
				require.Eventually(t, func() bool { return s.Subscription("t", "s").Backlog == 0 }, 5*time.Second,
					5*time.Millisecond)
				require.Len(t, s.Messages("t"), 10)
				require.Equal(t, "3", string(s.Messages("t")[3].Payload))
			})
		}
	}
}
