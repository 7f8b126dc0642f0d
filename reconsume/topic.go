package reconsume

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

// topic publishes to one topic, in the order of the calls.
//
// A broker gives no answer if it refuses a message, for its delay or because it exceeds the topic's maxMessageSize.
// From then on upstream's producer reports no answers to later messages, although the broker publishes these. So a
// message that is larger than any before it, or has a longer delay, goes alone: it waits until all messages before it
// have an answer, and later ones wait until it has one.
//
// KNOWN WINDOW: bytes are counted before compression. A message that is smaller than an earlier one, but compresses
// worse, does not go alone. If the broker refuses it, its call and those of the messages after it return errNoAnswer at
// their deadlines, though the broker has published the messages after it. The same holds for a batch whose messages
// together are too large, for a maxMessageSize below 4 KiB, and after a policy of the namespace or the topic has
// changed. After such an error the next message goes alone.
type topic struct {
	usual  *producer
	single *producer                  // for messages that are large, or empty and not encrypted
	pieces func(chunk uint) *producer // returns a producer of chunks of that size; nil if none may be used
	// messages are encrypted: then upstream delivers an empty payload as ciphertext unless it is in a batch
	encrypted bool

	turn chan struct{} // full while a call starts, and until a message that goes alone has an answer
	last *producer     // of the last call that had the turn
	// the message of that call may wait in a batch, which a message outside of a batch would overtake
	batched bool

	mu       sync.Mutex
	delay    time.Duration // the longest delay that the broker accepted
	bytes    int           // the largest size that the broker accepted, or small
	refusals []refusal
}

// refusal describes a message that the broker refused for its delay or its size.
type refusal struct {
	delay time.Duration
	bytes int // 0 if the broker refused the delay
	at    time.Time
}

const (
	// small is a message size, in bytes, that every topic is assumed to allow until it leaves a message without answer.
	small = 4 << 10
	// memory is how long a refusal counts. To find out again takes five seconds in which nothing is published.
	memory = 10 * time.Minute
)

// newTopic returns a topic. usual and single may be the same producer.
func newTopic(usual, single *producer, encrypted bool) *topic {
	if single != usual {
		usual.chunks, single.instead = single, usual
	}
	return &topic{usual: usual, single: single, encrypted: encrypted, turn: make(chan struct{}, 1),
		bytes: small}
}

// start hands a message to a producer. answer waits for the broker's answer.
func (t *topic) start(ctx context.Context, msg *pulsar.ProducerMessage) (answer func() error) {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return failed(errBehind(ctx))
	}
	alone, err := t.goesAlone(msg)
	p := t.producerFor(msg)
	batched := isBatched(msg)
	if err == nil && t.last != nil && (alone || t.last != p || t.batched && !batched && msg.DeliverAfter == 0) {
		// otherwise this message could overtake earlier ones, or share a batch or a verdict with them
		err = t.last.drain(ctx)
	}
	if err != nil {
		<-t.turn
		return failed(err)
	}
	t.last, t.batched = p, batched
	answered, outcome := p.start(ctx, msg, alone), make(chan error, 1)
	if !alone {
		<-t.turn
		return func() error { return t.note(msg, answered()) }
	}
	go func() { // even if the caller never calls answer, or ctx ends
		err := t.note(msg, answered())
		<-t.turn
		outcome <- err
	}()
	return func() error {
		select {
		case err := <-outcome:
			return err
		case <-ctx.Done():
			return p.explained(fmt.Errorf("%w: %w", errNoAnswer, context.Cause(ctx)), msg)
		}
	}
}

// goesAlone reports whether a message is larger, or has a longer delay, than any that the broker accepted. It returns
// an error if the broker refused such a message recently.
func (t *topic) goesAlone(msg *pulsar.ProducerMessage) (alone bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delay, bytes := msg.DeliverAfter, bytesOf(msg)
	if delay <= t.delay && bytes <= t.bytes {
		return false, nil
	}
	t.refusals = slices.DeleteFunc(t.refusals, func(r refusal) bool { return time.Since(r.at) >= memory })
	for _, r := range t.refusals {
		if delay >= r.delay && bytes >= r.bytes {
			return false, fmt.Errorf("%w: %v with %d bytes, as it refused %v with %d", ErrDelayRefused, delay, bytes,
				r.delay, r.bytes)
		}
	}
	return true, nil
}

// note notes the outcome of a message, and returns it.
func (t *topic) note(msg *pulsar.ProducerMessage, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.delay, t.bytes = max(t.delay, msg.DeliverAfter), max(t.bytes, bytesOf(msg))
		return nil
	}
	t.delay, t.bytes = 0, 0 // the broker may accept less by now
	if isRefused(err) {
		r := refusal{msg.DeliverAfter, bytesOf(msg), time.Now()}
		if r.bytes <= small && r.delay > 0 {
			r.bytes = 0
		}
		t.refusals = append(t.refusals, r)
	}
	return err
}

// producerFor returns the producer for a message.
func (t *topic) producerFor(msg *pulsar.ProducerMessage) *producer {
	if bytesOf(msg) > publishing.Large || len(msg.Payload) == 0 && msg.Payload != nil && !t.encrypted {
		return t.single
	}
	return t.usual
}

// bytesOf returns the size of a message's payload and properties. Properties count because large ones do not fit into a
// batch: upstream writes the properties of the first message twice, the second time into the metadata of the batch.
func bytesOf(msg *pulsar.ProducerMessage) int {
	n := len(msg.Payload)
	for k, v := range msg.Properties {
		n += len(k) + len(v)
	}
	return n
}

// drain returns when the broker has answered all messages that p sent. It returns an error if ctx ends before.
func (p *producer) drain(ctx context.Context) error {
	p.mu.Lock()
	m, begin := p.made, time.Now()
	p.mu.Unlock()
	if m == nil {
		return nil
	}
	select {
	case <-m.ready:
		if m.err == nil {
			flushing, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(p.closed, cancel)()
			m.flush(flushing)
		}
	default: // nothing can have been sent
	}
	if ctx.Err() == nil {
		return nil
	}
	if time.Since(begin) > time.Second { // as for a message without answer: see begin
		p.replace(m)
	}
	return errBehind(ctx)
}

// errBehind returns the error of a message whose context ended before the messages before it had an answer.
func errBehind(ctx context.Context) error {
	return fmt.Errorf("reconsume: not published, as a message before it has no answer: %w", context.Cause(ctx))
}
