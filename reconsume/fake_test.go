package reconsume_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

var errBroker = errors.New("broker says no")

// client makes producers that record the messages they get.
type client struct {
	pulsar.Client
	mu       sync.Mutex
	slow     time.Duration                      // time to create a producer
	creating int                                // producers that are being created
	together bool                               // two producers were being created at the same time
	lost     func(*pulsar.ProducerMessage) bool // reports whether the broker loses a message
	failures int                                // number of the next creations that fail
	refuse   func(pulsar.ProducerOptions) error // returns the error of a creation; nil if none fails
	created  []pulsar.ProducerOptions           // of all attempts that were not refused
	made     []*producer
	sent     map[string][]*pulsar.ProducerMessage // by topic
	sendErr  error                                // the broker's answer to each message
	panics   bool                                 // SendAsync panics
	full     chan struct{}                        // if not nil, SendAsync blocks until the channel is closed
	closed   int                                  // producers that were closed
	stuck    time.Duration                        // time to close a producer
	pace     time.Duration                        // time between the answers to two messages
	away     chan struct{}                        // if not nil, the broker answers nothing until the channel is closed
}

func (c *client) CreateProducer(o pulsar.ProducerOptions) (pulsar.Producer, error) {
	c.mu.Lock()
	c.creating++
	c.together = c.together || c.creating > 1
	slow, away := c.slow, c.away
	c.mu.Unlock()
	time.Sleep(slow)
	if away != nil {
		<-away
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.creating--
	if c.refuse != nil {
		if err := c.refuse(o); err != nil {
			return (*producer)(nil), err
		}
	}
	c.created = append(c.created, o)
	c.failures--
	if c.failures >= 0 {
		return (*producer)(nil), errBroker // with a nil *producer, as upstream returns one
	}
	p := &producer{c: c, topic: o.Topic, chunk: int(o.ChunkMaxMessageSize)}
	c.made = append(c.made, p)
	return p, nil
}

// Close makes every later creation of a producer fail.
func (c *client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = func(pulsar.ProducerOptions) error { return pulsar.ErrProducerClosed }
	for _, p := range c.made {
		p.end()
	}
}

type producer struct {
	pulsar.Producer
	c      *client
	topic  string
	chunk  int // length from which on the broker gets a message in chunks, and does not lose it; 0 for none
	closed bool
	next   time.Time       // the answer to the next message comes at this time at the earliest
	broken bool            // the broker has lost a message, and loses all that follow
	failed []func()        // give the answers to the lost messages; Close calls them
	sent   []chan struct{} // one for each message; closed by the answer
}

// FlushWithCtx returns when each message that was sent before has an answer.
func (p *producer) FlushWithCtx(ctx context.Context) error {
	p.c.mu.Lock()
	sent := p.sent
	p.c.mu.Unlock()
	for _, answered := range sent {
		select {
		case <-answered:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (p *producer) Close() {
	p.c.mu.Lock()
	stuck := p.c.stuck
	p.c.mu.Unlock()
	time.Sleep(stuck)
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.c.closed++
	p.end()
}

// end gives the answers to the lost messages. The caller holds the client's mu.
func (p *producer) end() {
	p.closed = true
	for _, fail := range p.failed {
		fail()
	}
	p.failed = nil
}

func (p *producer) SendAsync(_ context.Context, m *pulsar.ProducerMessage,
	done func(pulsar.MessageID, *pulsar.ProducerMessage, error)) {
	p.c.mu.Lock()
	full := p.c.full
	p.c.mu.Unlock()
	if full != nil {
		<-full
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.c.panics || full != nil && p.closed {
		panic("send on closed channel")
	}
	answered := make(chan struct{})
	p.sent = append(p.sent, answered)
	answer := func(err error) {
		done(nil, m, err)
		close(answered)
	}
	p.broken = p.broken || p.c.lost != nil && p.c.lost(m) && (p.chunk == 0 || len(m.Payload) <= p.chunk)
	if p.broken {
		p.failed = append(p.failed, func() { answer(pulsar.ErrProducerClosed) })
		return
	}
	if p.c.sendErr == nil {
		p.c.sent[p.topic] = append(p.c.sent[p.topic], m)
	}
	if now := time.Now(); p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(p.c.pace)
	go func(away chan struct{}, wait time.Duration, err error) {
		if away != nil {
			<-away
		}
		time.Sleep(wait)
		p.c.mu.Lock()
		if p.closed && wait > 0 {
			err = pulsar.ErrProducerClosed // upstream has not sent the message yet
		}
		p.c.mu.Unlock()
		answer(err)
	}(p.c.away, time.Until(p.next), p.c.sendErr)
}

// consumer counts acknowledgements.
type consumer struct {
	pulsar.Consumer
	mu     sync.Mutex
	acked  int
	ackErr error
}

func (c *consumer) AckID(pulsar.MessageID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acked++
	return c.ackErr
}
func (c *consumer) Close() {}

type message struct {
	pulsar.Message
	props   map[string]string
	payload []byte // "secret" by default
	keys    *pulsar.EncryptionContext
	from    string // its topic; see Topic
}

func (m message) ID() pulsar.MessageID  { return pulsar.NewMessageID(3, 4, 0, 1) }
func (m message) SchemaVersion() []byte { return []byte{1} }

// Topic is the retry topic by default if the properties are those of a retry.
func (m message) Topic() string {
	if m.from != "" {
		return m.from
	}
	if m.props[pulsar.SysPropertyReconsumeTimes] != "" {
		return retries
	}
	return "persistent://public/default/orders-partition-1"
}
func (m message) Payload() []byte {
	if m.payload != nil {
		return m.payload
	}
	return []byte("secret")
}
func (m message) Key() string                                     { return "key" }
func (m message) OrderingKey() string                             { return "ordering" }
func (m message) PublishTime() time.Time                          { return time.UnixMilli(4) }
func (m message) EventTime() time.Time                            { return time.UnixMilli(5) }
func (m message) Properties() map[string]string                   { return m.props }
func (m message) GetEncryptionContext() *pulsar.EncryptionContext { return m.keys }
func (m message) RedeliveryCount() uint32                         { return 7 }

const (
	retries     = "persistent://public/default/orders-sub-RETRY"
	deadLetters = "persistent://public/default/orders-sub-DLQ"
)
