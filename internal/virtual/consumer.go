package virtual

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

type consumer struct {
	pulsar.Consumer // nil: tests do not call its other methods
	broker          *Broker
	opts            pulsar.ConsumerOptions
	out             chan pulsar.ConsumerMessage
	wake            chan struct{}
	closing         sync.Once
	closed, ended   chan struct{}
	// full while the consumer reconnects; Close waits for the end of that, as in pulsar-client-go
	connecting chan struct{}

	// Guarded by the broker's lock:
	queue            []pulsar.ConsumerMessage
	notified, active bool // on Failover: the listener was called; its last call was BecameActive
}

// send delivers an entry. The caller holds the broker's lock.
func (c *consumer) send(n int) {
	e := c.broker.entries[n]
	if e.acked {
		return
	}
	e.with, e.sent = c, true
	count := e.count
	if c.rewinds() {
		count = 0
	}
	cm := pulsar.ConsumerMessage{Consumer: c, Message: &message{e, idOf(n), count, c.opts.Schema}}
	for _, x := range c.opts.Interceptors {
		x.BeforeConsume(cm)
	}
	c.queue = append(c.queue, cm)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// takeBack takes back all messages that were sent and not acknowledged. The caller holds the broker's lock.
func (c *consumer) takeBack() {
	c.queue = nil
	for _, e := range c.broker.entries {
		if e.with == c {
			e.with = nil
		}
	}
	c.broker.unblock()
}

// rewinds reports whether the broker answers a nack with all unacknowledged messages, as on Exclusive and Failover.
func (c *consumer) rewinds() bool {
	return c.opts.Type == pulsar.Exclusive || c.opts.Type == pulsar.Failover
}

// run hands out the messages in the queue.
func (c *consumer) run() {
	defer close(c.ended)
	for {
		c.broker.mu.Lock()
		var next pulsar.ConsumerMessage
		if len(c.queue) > 0 {
			next, c.queue = c.queue[0], c.queue[1:]
		}
		c.broker.mu.Unlock()
		if next.Message == nil {
			select {
			case <-c.wake:
				continue
			case <-c.closed:
				return
			}
		}
		select {
		case c.out <- next:
		case <-c.closed:
			return
		}
	}
}

func (c *consumer) Name() string                        { return "virtual" }
func (c *consumer) Subscription() string                { return c.opts.SubscriptionName }
func (c *consumer) Chan() <-chan pulsar.ConsumerMessage { return c.out }

// GetLastMessageIDs returns an error, as CreateReader does.
func (c *consumer) GetLastMessageIDs() ([]pulsar.TopicMessageID, error) { return nil, errNoReaders }

func (c *consumer) Close() {
	c.closing.Do(func() {
		c.connecting <- struct{}{}
		defer func() { <-c.connecting }()
		close(c.closed)
		c.broker.mu.Lock()
		defer c.broker.mu.Unlock()
		c.broker.consumers = slices.DeleteFunc(c.broker.consumers, func(other *consumer) bool { return other == c })
		c.takeBack()
		c.broker.mu.Unlock()
		c.broker.elected()
		c.broker.mu.Lock()
		c.broker.deliverAll()
	})
	<-c.ended
}

func (c *consumer) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// Receive returns no message: a redelivery.Consumer takes them from the channel.
func (c *consumer) Receive(ctx context.Context) (pulsar.Message, error) {
	if c.isClosed() {
		return nil, errClosed
	}
	select {
	case <-c.closed:
		return nil, errClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *consumer) Ack(msg pulsar.Message) error { return c.AckID(msg.ID()) }

func (c *consumer) AckID(id pulsar.MessageID) error {
	if c.isClosed() {
		return errClosed
	}
	if c.broker.Ack != nil {
		if err := c.broker.Ack(id); err != nil {
			return err
		}
	}
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	e := c.broker.entries[id.EntryID()]
	e.acked, e.with = true, nil
	if c.opts.Type == pulsar.KeyShared && len(c.broker.consumers) > 1 {
		c.broker.deliverAll()
	}
	c.broker.unblock()
	return nil
}

func (c *consumer) AckIDList(ids []pulsar.MessageID) error {
	failed := pulsar.AckError{}
	for _, id := range ids {
		if err := c.AckID(id); err != nil {
			failed[id] = err
		}
	}
	if len(failed) > 0 {
		return failed
	}
	return nil
}

func (c *consumer) NackID(id pulsar.MessageID) {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	if c.rewinds() {
		c.takeBack()
		c.broker.deliverAll()
		return
	}
	if e := c.broker.entries[id.EntryID()]; e.with == c {
		e.with = nil
		e.count++
		c.broker.deliver(int(id.EntryID()))
		c.broker.unblock()
	}
}

func (c *consumer) Nack(msg pulsar.Message) { c.NackID(msg.ID()) }

// message is a delivery of an entry.
type message struct {
	*entry
	id     pulsar.MessageID
	count  uint32
	schema pulsar.Schema
}

func (m *message) Topic() string                                   { return m.topic }
func (m *message) ProducerName() string                            { return "virtual" }
func (m *message) Properties() map[string]string                   { return m.msg.Properties }
func (m *message) IsNullValue() bool                               { return m.Payload() == nil }
func (m *message) ID() pulsar.MessageID                            { return m.id }
func (m *message) PublishTime() time.Time                          { return m.at.Truncate(time.Millisecond) }
func (m *message) EventTime() time.Time                            { return m.msg.EventTime }
func (m *message) Key() string                                     { return m.msg.Key }
func (m *message) OrderingKey() string                             { return m.msg.OrderingKey }
func (m *message) RedeliveryCount() uint32                         { return m.count }
func (m *message) IsReplicated() bool                              { return false }
func (m *message) GetReplicatedFrom() string                       { return "" }
func (m *message) SchemaVersion() []byte                           { return nil }
func (m *message) GetEncryptionContext() *pulsar.EncryptionContext { return nil }
func (m *message) Index() *uint64                                  { return nil }
func (m *message) BrokerPublishTime() *time.Time                   { return nil }

func (m *message) Payload() []byte {
	if m.msg.Payload == nil && m.msg.Value != nil && m.schema != nil {
		payload, err := m.schema.Encode(m.msg.Value)
		if err != nil {
			panic(err) // a test's own mistake
		}
		return payload
	}
	return m.msg.Payload
}

func (m *message) GetSchemaValue(v any) error {
	if m.schema == nil {
		return errors.New("virtual: the consumer has no schema")
	}
	return m.schema.Decode(m.Payload(), v)
}
