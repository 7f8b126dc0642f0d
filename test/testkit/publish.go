package testkit

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

// Send publishes the payloads "0" to "n-1". If batched is set, they are in one batch and have no keys; otherwise they
// are single, and each has its payload as its key.
func (b *Broker) Send(topic string, n int, batched bool) {
	b.T.Helper()
	opts := pulsar.ProducerOptions{Topic: topic, DisableBatching: !batched}
	if batched {
		opts.BatchingMaxMessages, opts.BatchingMaxPublishDelay = uint(n), time.Minute
		// one batch for each partition
		opts.MessageRouter = func(m *pulsar.ProducerMessage, meta pulsar.TopicMetadata) int {
			return int(m.Payload[len(m.Payload)-1]) % int(meta.NumPartitions())
		}
	}
	p, err := b.Client.CreateProducer(opts)
	require.NoError(b.T, err)
	defer p.Close()
	for i := range n {
		payload := fmt.Sprint(i)
		m := &pulsar.ProducerMessage{Payload: []byte(payload)}
		if !batched {
			m.Key = payload
		}
		p.SendAsync(context.Background(), m, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			if err != nil {
				b.T.Errorf("send: %v", err)
			}
		})
	}
	require.NoError(b.T, p.FlushWithCtx(context.Background()))
}

// Publish sends messages one by one.
func (b *Broker) Publish(o pulsar.ProducerOptions, msgs ...*pulsar.ProducerMessage) {
	b.T.Helper()
	p, err := b.Client.CreateProducer(o)
	require.NoError(b.T, err)
	defer p.Close()
	for _, m := range msgs {
		_, err := p.Send(context.Background(), m)
		require.NoError(b.T, err)
	}
}

// SendBatches publishes the payloads "0" to "n-1": if batched is set, in batches of fifty without keys, and otherwise
// like Send.
func (b *Broker) SendBatches(topic string, n int, batched bool) {
	b.T.Helper()
	if !batched {
		b.Send(topic, n, false)
		return
	}
	p, err := b.Client.CreateProducer(pulsar.ProducerOptions{
		Topic: topic, BatchingMaxMessages: 50, BatchingMaxPublishDelay: time.Minute,
	})
	require.NoError(b.T, err)
	defer p.Close()
	for i := range n {
		payload := strconv.Itoa(i)
		p.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: []byte(payload)},
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				if err != nil {
					b.T.Errorf("send: %v", err)
				}
			})
	}
	require.NoError(b.T, p.FlushWithCtx(context.Background()))
}
