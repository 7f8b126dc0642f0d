package reconsume

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// If a producer cannot be created, the next attempt comes after a pause, which is twice as long each time. Calls during
// the pause return the error at once: a dead letter must not hold up others, and its message has a backoff of its own.
const minPause, maxPause = 100 * time.Millisecond, 10 * time.Second

// producer creates a pulsar.Producer for the first message, and a new one when the current one stops working.
// CreateProducer takes no context, so a goroutine of its own creates the producer for all calls that wait.
type producer struct {
	topic   string
	pending int // limit of messages without an answer
	create  func(*verdict) (pulsar.Producer, error)
	chunks  *producer     // publishes messages that are too large for this producer; nil if there is none
	instead *producer     // publishes if a limit keeps this producer from being created; nil if there is none
	only    bool          // the topic can have only one producer, so ask cannot create another one
	timeout time.Duration // how long create may take
	closed  context.Context

	mu      sync.Mutex
	made    *made          // nil if the next call must create one
	pause   time.Duration  // the pause after the last failed attempt; 0 after success
	next    time.Time      // earliest time of the next attempt
	refused error          // error of the last failed attempt; calls return it until next
	work    sync.WaitGroup // goroutines that create or close a producer
}

// made is a pulsar.Producer, or the attempt to create one.
type made struct {
	pulsar.Producer
	err      error
	ready    chan struct{}  // closed when Producer or err is set
	calls    sync.WaitGroup // calls that use the producer
	pending  chan struct{}  // has an element for each message without an answer
	flushing chan struct{}  // full while a caller flushes
	verdict  verdict
}

// get returns a producer and counts the caller in the producer's calls. If get returns no error, the caller must call
// calls.Done. If there is no producer, get begins to create one and waits until it is created. During the pause after a
// failed attempt, get returns the error of that attempt instead.
func (p *producer) get(ctx context.Context) (*made, error) {
	p.mu.Lock()
	m, err := p.made, ctx.Err()
	if p.closed.Err() != nil {
		err = ErrClosed
	}
	if err == nil && m == nil && time.Now().Before(p.next) {
		err = p.refused
	}
	if err != nil {
		p.mu.Unlock()
		return nil, err
	}
	if m == nil {
		m = &made{ready: make(chan struct{}), pending: make(chan struct{}, p.pending), flushing: make(chan struct{}, 1)}
		m.verdict.known = make(chan struct{})
		p.made = m
		p.work.Go(func() { p.try(m) })
	}
	m.calls.Add(1)
	p.mu.Unlock()
	select {
	case <-m.ready:
		err = m.err
	case <-p.closed.Done():
		err = ErrClosed
	case <-ctx.Done():
		err = fmt.Errorf("reconsume: no producer was created in time: %w", ctx.Err())
	}
	if err != nil {
		m.calls.Done()
	}
	return m, err
}

// try makes an attempt to create a producer.
func (p *producer) try(m *made) {
	defer close(m.ready)
	created, err := p.createAlone(&m.verdict)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		m.Producer, p.pause = created, 0
		return
	}
	m.err = fmt.Errorf("reconsume: creating a producer of %s: %w", p.topic, err)
	p.refused = m.err
	p.pause = min(max(2*p.pause, minPause), maxPause)
	p.next = time.Now().Add(p.pause)
	if p.made == m {
		p.made = nil
	}
}

// createProducer creates a producer. If the broker refuses its name or its schema, it tries once more with another name
// or without a schema.
func (o *Options) createProducer(client pulsar.Client, options func() pulsar.ProducerOptions) (pulsar.Producer, error) {
	p := options()
	made, err := client.CreateProducer(p)
	if err == nil {
		return made, nil
	}
	name, schema := p.Name, p.Schema
	switch p = options(); {
	case name != "" && strings.Contains(err.Error(), "is already connected"): // another replica has it
		p.Name = name + "-" + letters()
		o.Logger.Warn("reconsume: another producer has the configured name, so this one has a suffix", "topic", p.Topic,
			"name", p.Name)
	case schema != nil && strings.Contains(err.Error(), "IncompatibleSchema"):
		p.Schema = nil
		o.Logger.Warn("reconsume: the topic has another schema, so messages are published without one: let each "+
			"schema have a topic of its own",
			"topic", p.Topic, "error", err)
	case strings.Contains(err.Error(), "existing exclusive producer"):
		return made, fmt.Errorf("%w: want ProducerAccessModeShared for all producers of the topic", err)
	default:
		return made, err
	}
	return client.CreateProducer(p)
}

// isFull reports whether a producer could not be created because the topic has as many as the namespace allows
// (maxProducersPerTopic).
func isFull(err error) bool {
	return err != nil && strings.Contains(err.Error(), "reached max producers limit")
}

// creating has a channel for each topic whose producer is being created. The channel is closed afterwards. A broker may
// give no answer to two producers that create an initial subscription at the same moment.
var creating sync.Map

// createAlone creates a producer when no other producer of the topic is being created. It gives up after the timeout; a
// producer that is created later is closed.
func (p *producer) createAlone(v *verdict) (pulsar.Producer, error) {
	timeout, done := time.After(p.timeout), make(chan struct{})
	for other, busy := creating.LoadOrStore(p.topic, done); busy; other, busy = creating.LoadOrStore(p.topic, done) {
		select {
		case <-other.(chan struct{}):
		case <-p.closed.Done():
			return nil, ErrClosed
		case <-timeout:
			return nil, context.DeadlineExceeded
		}
	}
	defer close(done)
	defer creating.Delete(p.topic)
	if p.closed.Err() != nil {
		return nil, ErrClosed
	}
	var made pulsar.Producer
	var err error
	created := make(chan struct{})
	go func() {
		defer close(created)
		made, err = p.create(v)
	}()
	select {
	case <-created:
		return made, err
	case <-timeout:
		go func() {
			if <-created; err == nil {
				made.Close()
			}
		}()
		return nil, context.DeadlineExceeded
	}
}

// replace makes the next call create another producer, unless m is replaced already. It closes m only after the calls
// of m have ended, since the broker may still answer them.
func (p *producer) replace(m *made) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m == nil || p.made != m {
		return
	}
	p.made = nil
	p.work.Go(func() {
		if <-m.ready; m.err == nil {
			m.calls.Wait()
			m.Close()
		}
	})
}

// close closes the producer, if there is one. The caller has ended p.closed before, which ends all calls. close waits
// for half a second at most for a producer that is being created: the client may be closed next, and the producer would
// keep its connection open.
func (p *producer) close() {
	p.mu.Lock()
	m := p.made
	p.mu.Unlock()
	p.replace(m)
	done := make(chan struct{})
	go func() {
		p.work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(500 * time.Millisecond):
	}
}
