// Package virtual is a pulsar.Client without a network, so that it works in the virtual time of testing/synctest. It
// imitates the parts of a broker that a Worker uses: publishing, delivery, redelivery, acknowledgement, retry and dead
// letter topics.
package virtual

import (
	"cmp"
	"errors"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// Broker is a client and its broker, with one subscription and any number of consumers. The zero value is ready to use.
// Ack, if set, is called for each acknowledgement, and Send for each publication. An error that they return is the
// error of the acknowledgement or publication.
type Broker struct {
	pulsar.Client // nil: tests do not call its other methods
	Ack           func(pulsar.MessageID) error
	Send          func(topic string) error
	// If Shared consumers have this many unacknowledged messages, new messages wait until the consumers have fewer than
	// half as many. 0 means no limit.
	MaxUnacked int

	reconnects    sync.Mutex // held by Reconnect, so that one reconnection ends before the next begins
	reconnections int        // guarded by reconnects

	mu        sync.Mutex
	entries   []*entry
	topics    []string // of the consumers
	consumers []*consumer
	turn      int  // number of messages that were sent on Shared, to choose the next consumer
	blocked   bool // MaxUnacked was reached
	published map[string][]*pulsar.ProducerMessage
}

// entry is a message at the broker.
type entry struct {
	topic string
	msg   *pulsar.ProducerMessage
	at    time.Time
	acked bool
	count uint32
	with  *consumer // the consumer that has it; nil if it can be sent
	later bool      // its delay is not over, so Shared and Key_Shared consumers do not get it yet
	sent  bool      // it was sent before
}

// Publish sends a message to a topic. DeliverAfter and DeliverAt are exact.
func (b *Broker) Publish(topic string, msg *pulsar.ProducerMessage) pulsar.MessageID {
	topic = topicname.Full(topic)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.published == nil {
		b.published = map[string][]*pulsar.ProducerMessage{}
	}
	b.published[topic] = append(b.published[topic], msg)
	delay := msg.DeliverAfter
	if delay <= 0 && !msg.DeliverAt.IsZero() {
		delay = time.Until(msg.DeliverAt)
	}
	n := len(b.entries)
	e := &entry{topic: topic, msg: msg, at: time.Now(), later: delay > 0}
	b.entries = append(b.entries, e)
	if b.deliver(n); e.later {
		time.AfterFunc(delay, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			e.later = false
			b.deliver(n)
		})
	}
	return idOf(n)
}

// Published returns the messages of a topic.
func (b *Broker) Published(topic string) []*pulsar.ProducerMessage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.published[topicname.Full(topic)])
}

// Unacked returns the ids of the messages of the consumers' topics that are not acknowledged.
func (b *Broker) Unacked() (left []pulsar.MessageID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, e := range b.entries {
		if !e.acked && slices.Contains(b.topics, e.topic) {
			left = append(left, idOf(n))
		}
	}
	return left
}

// Acked returns the payloads of the acknowledged messages of a topic.
func (b *Broker) Acked(topic string) (payloads []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.entries {
		if e.topic == topicname.Full(topic) && e.acked {
			payloads = append(payloads, string(e.msg.Payload))
		}
	}
	return payloads
}

// Each calls f for each message that was published, in their order.
func (b *Broker) Each(f func(id pulsar.MessageID, msg *pulsar.ProducerMessage, acked bool)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, e := range b.entries {
		f(idOf(n), e.msg, e.acked)
	}
}

// Entry returns the entry id of the first message with a payload, or -1.
func (b *Broker) Entry(payload string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.IndexFunc(b.entries, func(e *entry) bool { return string(e.msg.Payload) == payload })
}

// Reconnect breaks the consumers' connections: unacknowledged messages come again, with a count of 0. Like a consumer
// of pulsar-client-go, each consumer asks for a backoff, and resets the backoff once it is connected. At every second
// reconnection it resets the backoff only after the messages have come. The consumers' interceptors see each message.
func (b *Broker) Reconnect() {
	b.reconnects.Lock()
	defer b.reconnects.Unlock()
	b.mu.Lock()
	all := slices.Clone(b.consumers)
	b.mu.Unlock()
	b.reconnections++
	for _, c := range all {
		c.connecting <- struct{}{}
		defer func() { <-c.connecting }()
		if c.opts.BackOffPolicyFunc == nil || c.isClosed() {
			continue
		}
		if p := c.opts.BackOffPolicyFunc(); b.reconnections%2 == 1 {
			p.Reset()
		} else {
			defer p.Reset()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.entries {
		e.count = 0
	}
	for _, c := range all {
		c.takeBack()
	}
	b.deliverAll()
}

// GiveUp closes the first consumer as upstream does when it gives up reconnecting, and reports whether there is one.
func (b *Broker) GiveUp(err error) bool {
	b.mu.Lock()
	if len(b.consumers) == 0 {
		b.mu.Unlock()
		return false
	}
	c := b.consumers[0]
	b.mu.Unlock()
	for _, x := range c.opts.Interceptors {
		if x, ok := x.(pulsar.ConsumerCloseInterceptor); ok {
			x.OnConsumerClose(c, err)
		}
	}
	return true
}

// Subscribe adds a consumer. All consumers must have the same topics and type. On Exclusive and Failover the first one
// gets all messages.
func (b *Broker) Subscribe(opts pulsar.ConsumerOptions) (pulsar.Consumer, error) {
	c := &consumer{broker: b, opts: opts, out: opts.MessageChannel, wake: make(chan struct{}, 1),
		closed: make(chan struct{}),
		ended:  make(chan struct{}), connecting: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.topics = nil
	for _, topic := range append(opts.Topics, opts.Topic) {
		if topic != "" {
			b.topics = append(b.topics, topicname.Full(topic))
		}
	}
	b.consumers = append(b.consumers, c)
	go c.run()
	b.mu.Unlock()
	b.elected()
	b.mu.Lock()
	b.deliverAll()
	return c, nil
}

// deliverAll sends the messages that no consumer has. The caller holds mu.
func (b *Broker) deliverAll() {
	for n := range b.entries {
		b.deliver(n)
	}
}

// deliver sends an entry if no consumer has it. The caller holds mu.
func (b *Broker) deliver(n int) {
	e := b.entries[n]
	if b.blocked && !e.sent || e.acked || e.with != nil ||
		len(b.consumers) == 0 || !slices.Contains(b.topics, e.topic) ||
		e.later && !b.consumers[0].rewinds() { // Exclusive and Failover know no delays
		return
	}
	of := 0
	switch b.consumers[0].opts.Type {
	case pulsar.Shared:
		b.turn++
		of = b.turn % len(b.consumers)
	case pulsar.KeyShared:
		hash := fnv.New32()
		_, _ = hash.Write([]byte(e.key()))
		of = int(hash.Sum32()) % len(b.consumers)
		if len(b.consumers) > 1 {
			for _, before := range b.entries[:n] { // a key moves once its old consumer has none of its messages
				if !before.acked && before.with != nil && before.with != b.consumers[of] && before.key() == e.key() {
					return
				}
			}
		}
	default: // the first one is active
	}
	b.consumers[of].send(n)
	b.blocked = b.blocked || b.MaxUnacked > 0 && b.unacked() >= b.MaxUnacked
}

// unacked counts the messages that consumers have. The caller holds mu.
func (b *Broker) unacked() (n int) {
	for _, e := range b.entries {
		if e.with != nil {
			n++
		}
	}
	return n
}

// unblock sends the new messages that wait because of MaxUnacked, if enough others are settled. The caller holds mu.
func (b *Broker) unblock() {
	if b.blocked && b.unacked() < b.MaxUnacked/2 {
		b.blocked = false
		b.deliverAll()
	}
}

func (e *entry) key() string { return cmp.Or(e.msg.OrderingKey, e.msg.Key) }

// Consumers returns the number of consumers.
func (b *Broker) Consumers() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.consumers)
}

// TopicPartitions returns the topic itself: none is partitioned.
func (b *Broker) TopicPartitions(topic string) ([]string, error) { return []string{topic}, nil }

// CreateProducer makes a producer of any topic.
func (b *Broker) CreateProducer(opts pulsar.ProducerOptions) (pulsar.Producer, error) {
	return &producer{broker: b, topic: opts.Topic}, nil
}

// CreateReader returns an error, so there is no log of attempts.
func (b *Broker) CreateReader(pulsar.ReaderOptions) (pulsar.Reader, error) {
	return nil, errNoReaders
}

var errNoReaders = errors.New("there are no readers and no log of attempts here: use package pulsartest")

// Close does nothing.
func (b *Broker) Close() {}

func idOf(n int) pulsar.MessageID { return pulsar.NewMessageID(1, int64(n), 0, 0) }
