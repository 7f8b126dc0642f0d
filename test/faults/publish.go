package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/history"
)

// publisher publishes messages in the order of their numbers: a hundred in batches of ten, the next hundred single, and
// so on. For the app byKey all are single.
type publisher struct {
	work   work
	record *record
	client pulsar.Client
	single pulsar.Producer
	ten    pulsar.Producer

	mu     sync.Mutex
	failed error // the first error
}

func newPublisher(url string, w work, r *record) (p *publisher, err error) {
	p = &publisher{work: w, record: r}
	if p.client, err = pulsar.NewClient(pulsar.ClientOptions{URL: url, Logger: silent}); err != nil {
		return nil, err
	}
	opts := pulsar.ProducerOptions{Topic: w.Topic, BatchingMaxMessages: 10, DisableBatching: true,
		MessageRouter: func(msg *pulsar.ProducerMessage, _ pulsar.TopicMetadata) int {
			return w.partition(number(msg.Payload))
		}}
	if w.Type == pulsar.KeyShared {
		opts.BatcherBuilderType = pulsar.KeyBasedBatchBuilder
	}
	if p.single, err = p.client.CreateProducer(opts); err == nil {
		opts.DisableBatching = false
		p.ten, err = p.client.CreateProducer(opts)
	}
	if err != nil {
		p.client.Close()
		return nil, err
	}
	return p, nil
}

// send publishes a message. After every hundred messages it waits until the broker has them, because another producer
// publishes the next hundred, and messages of two producers may overtake each other.
func (p *publisher) send(ctx context.Context, n int) error {
	// a batch has one key
	msg := &pulsar.ProducerMessage{Payload: fmt.Appendf(nil, "%06d%100s", n, ""), Key: fmt.Sprint(n / 10 % 10)}
	published := history.Event{Kind: history.Published, Message: fmt.Sprint(n)}
	producer := p.single
	switch {
	case p.work.App == byKey:
		msg.Key = fmt.Sprint("key", n%keys)
		if p.work.Ordered {
			published.Key = msg.Key
		}
	case n/100%2 == 1:
		producer = p.ten
	}
	if p.work.Cumulative { // in other works messages overtake failed ones, and four goroutines receive
		published.Key = fmt.Sprint("partition ", n%p.work.stride())
	}
	p.record.note(published)
	producer.SendAsync(ctx, msg, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.failed = cmp.Or(p.failed, err)
	})
	if n%100 == 99 && p.work.App != byKey {
		return p.flush(ctx)
	}
	return nil
}

// flush waits until the broker has all messages. It returns an error if a message could not be published.
func (p *publisher) flush(ctx context.Context) error {
	err := errors.Join(p.single.FlushWithCtx(ctx), p.ten.FlushWithCtx(ctx))
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(err, p.failed)
}

func (p *publisher) close() {
	p.single.Close()
	p.ten.Close()
	p.client.Close()
}

func (w work) letterTopic() string { return w.Topic + "-" + subscription + pulsar.DlqTopicSuffix }

// readLetters records dead letters until end is called.
func (t *trial) readLetters() (end func(), err error) {
	if t.work.MaxDeliveries == 0 {
		return func() {}, nil
	}
	c, err := t.publisher.client.Subscribe(pulsar.ConsumerOptions{Topic: t.work.letterTopic(),
		SubscriptionName:            "letters",
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			msg, err := c.Receive(ctx)
			if err != nil {
				return
			}
			// after an unload the broker sends unacknowledged letters again
			if id := msg.ID().String(); !t.record.read[id] {
				t.record.read[id] = true
				t.record.note(history.Event{Kind: history.DeadLettered, Message: fmt.Sprint(number(msg.Payload()))})
			}
			_ = c.Ack(msg)
		}
	})
	return sync.OnceFunc(func() {
		cancel()
		reading.Wait()
		c.Close()
	}), nil
}
