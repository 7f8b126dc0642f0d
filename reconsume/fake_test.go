package reconsume_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

var errBroker = errors.New("broker says no")

// client makes producers that note what they are sent.
type client struct {
	pulsar.Client
	mu        sync.Mutex
	slow      time.Duration // to create a producer
	stuck     bool          // publishing
	failures  int           // of creating, to come
	created   []pulsar.ProducerOptions
	sent      map[string][]*pulsar.ProducerMessage
	sendErr   error
	sending   int
	closed    int
	tooSoon   bool // a producer was closed while it sent
	subscribe []pulsar.ConsumerOptions
}

func (c *client) Subscribe(o pulsar.ConsumerOptions) (pulsar.Consumer, error) {
	c.subscribe = append(c.subscribe, o)
	return &consumer{}, nil
}

func (c *client) CreateProducer(o pulsar.ProducerOptions) (pulsar.Producer, error) {
	time.Sleep(c.slow)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.created = append(c.created, o)
	if c.failures--; c.failures >= 0 {
		return (*producer)(nil), errBroker // typed, as upstream's
	}
	return &producer{c: c, topic: o.Topic}, nil
}

type producer struct {
	pulsar.Producer
	c     *client
	topic string
}

func (p *producer) Topic() string { return p.topic }
func (p *producer) Close() {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.c.closed++
	p.c.tooSoon = p.c.tooSoon || p.c.sending > 0
}

func (p *producer) Send(ctx context.Context, m *pulsar.ProducerMessage) (pulsar.MessageID, error) {
	if p.c.stuck {
		p.c.mu.Lock()
		p.c.sending++
		p.c.mu.Unlock()
		<-ctx.Done()
		time.Sleep(time.Millisecond)
		p.c.mu.Lock()
		p.c.sending--
		p.c.mu.Unlock()
		return nil, ctx.Err()
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.c.sendErr != nil {
		return nil, p.c.sendErr
	}
	p.c.sent[p.topic] = append(p.c.sent[p.topic], m)
	return nil, nil
}

// consumer notes what is acknowledged.
type consumer struct {
	pulsar.Consumer
	acked  int
	ackErr error
}

func (c *consumer) AckID(pulsar.MessageID) error { c.acked++; return c.ackErr }
func (c *consumer) Close()                       {}

type message struct {
	pulsar.Message
	props map[string]string
}

func (m message) ID() pulsar.MessageID          { return pulsar.NewMessageID(3, 4, 0, 1) }
func (m message) Topic() string                 { return "persistent://public/default/orders-partition-1" }
func (m message) Payload() []byte               { return []byte("secret") }
func (m message) Key() string                   { return "key" }
func (m message) OrderingKey() string           { return "ordering" }
func (m message) EventTime() time.Time          { return time.UnixMilli(5) }
func (m message) Properties() map[string]string { return m.props }
func (m message) RedeliveryCount() uint32       { return 7 }

const (
	retries     = "persistent://public/default/orders-sub-RETRY"
	deadLetters = "persistent://public/default/orders-sub-DLQ"
)
