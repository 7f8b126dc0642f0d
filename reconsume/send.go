package reconsume

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

var errNoAnswer = errors.New("whether the message was published is unknown: no answer from the broker")

func isRefused(err error) bool { return errors.Is(err, ErrDelayRefused) }

// start hands msg to the producer. answer waits for the broker's answer. Messages are published in the order of the
// calls, except a message or batch that is too large: it is published later, in chunks. alone says that the message
// goes alone (see topic): the broker may refuse it.
func (p *producer) start(ctx context.Context, msg *pulsar.ProducerMessage, alone bool) (answer func() error) {
	answered := p.begin(ctx, msg, alone)
	return func() error {
		err := answered()
		if p.chunks == nil || len(msg.Payload) == 0 || msg.Schema != nil || !isTooLarge(err) {
			// chunks have no schema version, so a message with a schema is not published in chunks
			return err
		}
		return p.chunks.start(ctx, msg, alone)()
	}
}

// isTooLarge reports whether upstream refused a message, or the batch that it was in, for its size. One of its errors
// has no public name.
func isTooLarge(err error) bool {
	return errors.Is(err, pulsar.ErrMessageTooLarge) ||
		err != nil && strings.Contains(err.Error(), "encryptedPayload exceeds MaxMessageSize")
}

// begin does what start does, without chunks.
func (p *producer) begin(ctx context.Context, msg *pulsar.ProducerMessage, alone bool) (answer func() error) {
	m, err := p.get(ctx)
	switch {
	case p.instead != nil && isFull(err):
		return p.instead.begin(ctx, msg, alone)
	case err != nil:
		return failed(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	own, cancelOwn := p.underway(ctx, alone)
	stop := context.AfterFunc(p.closed, func() { cancel(); cancelOwn() })
	begin, answered := time.Now(), make(chan error, 2)
	m.send(ctx, own, msg, func(err error) {
		for _, end := range []error{pulsar.ErrProducerClosed, pulsar.ErrProducerFenced, pulsar.ErrSendTimeout,
			pulsar.ErrTopicTerminated, pulsar.ErrTopicNotfound} {
			if errors.Is(err, end) {
				p.replace(m)
			}
		}
		answered <- err
	})
	return func() error {
		defer m.calls.Done()
		defer cancel()
		defer cancelOwn()
		defer stop()
		if alone && !p.only {
			defer time.AfterFunc(patience, func() { p.ask(own, m) }).Stop()
		}
		err := m.wait(own, answered, isBatched(msg))
		if alone && errors.Is(err, pulsar.ErrProducerClosed) {
			err = m.verdict.errorOf(own, msg, err)
		}
		if errors.Is(err, errNoAnswer) && (alone || time.Since(begin) > time.Second) {
			p.replace(m)
		}
		switch {
		case err == nil:
			return nil
		case p.closed.Err() != nil:
			return ErrClosed
		}
		return p.explained(err, msg)
	}
}

// explained adds the topic to the error of a message and, without an answer, a hint about the message's size.
func (p *producer) explained(err error, msg *pulsar.ProducerMessage) error {
	if errors.Is(err, errNoAnswer) {
		err = fmt.Errorf("%w (a message beyond the topic's maxMessageSize gets no answer; this payload has %d bytes)",
			err, len(msg.Payload))
	}
	return fmt.Errorf("reconsume: publishing to %s: %w", p.topic, err)
}

// underway returns the context of a message that is handed to a producer. If ask may find out whether the broker
// refuses the message, the context ends some time after ctx: callers with short deadlines would never learn of a
// refusal otherwise.
func (p *producer) underway(ctx context.Context, alone bool) (context.Context, context.CancelFunc) {
	if !alone || p.only {
		return ctx, func() {}
	}
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(2*patience, cancel) })
	return own, func() { stop(); cancel() }
}

// send hands msg to upstream's producer with the context own. It returns when upstream has taken msg, or when ctx ends.
// It calls answer with the outcome, or never if upstream loses the message. If ctx ends before upstream has taken msg,
// send calls answer with errNoAnswer, and upstream's outcome may follow.
func (m *made) send(ctx, own context.Context, msg *pulsar.ProducerMessage, answer func(error)) {
	select {
	case m.pending <- struct{}{}:
		// the limit keeps upstream's queue from filling: if a context ended while the queue is full, the connection
		// could be blocked forever
	case <-ctx.Done():
		answer(ctx.Err())
		return
	}
	send := func() {
		publishing.SendAsync(own, m, msg, func(_ pulsar.MessageID, err error) {
			<-m.pending
			answer(err)
		})
	}
	if msg.Schema == nil && own == ctx {
		send()
		return
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		send()
	}()
	select {
	case <-sent:
	case <-ctx.Done(): // upstream waits for the schema's version, or for room within its memory limit
		answer(fmt.Errorf("%w: %w", errNoAnswer, context.Cause(ctx)))
	}
}

// wait waits for the answer to a message. A message that waits in a batch is sent at once, together with all messages
// that came while the previous batch was under way.
func (m *made) wait(ctx context.Context, answered <-chan error, batched bool) error {
	flushing := m.flushing
	if !batched {
		flushing = nil
	}
	for {
		select {
		case err := <-answered:
			return err
		case flushing <- struct{}{}:
			m.flush(ctx)
			<-m.flushing
			flushing = nil
		case <-ctx.Done():
			select {
			case err := <-answered:
				return err
			default:
				return fmt.Errorf("%w: %w", errNoAnswer, context.Cause(ctx))
			}
		}
	}
}

func (m *made) flush(ctx context.Context) {
	defer func() { _ = recover() }() // as in publishing.SendAsync
	_ = m.FlushWithCtx(ctx)
}

// failed returns the function answer of a message that was not sent.
func failed(err error) func() error { return func() error { return err } }

// publish publishes a message with start. wait waits for the broker's answer, and then acknowledges the message.
func (r *Reconsumer) publish(ctx context.Context, start starter, cm pulsar.ConsumerMessage, props map[string]string,
	delay time.Duration) (wait func() error) {
	if ctx == nil {
		ctx = context.Background()
	}
	cancel := context.CancelFunc(func() {})
	if _, ok := ctx.Deadline(); !ok { // upstream may lose a message while its topic is terminated, and wait forever
		ctx, cancel = context.WithTimeout(ctx, r.o.OperationTimeout)
	}
	msg := &pulsar.ProducerMessage{
		Payload:      cm.Payload(),
		Key:          cm.Key(),
		OrderingKey:  cm.OrderingKey(),
		EventTime:    cm.EventTime(),
		Properties:   props,
		DeliverAfter: delay,
	}
	if r.mustNotBatch(msg) {
		msg.DeliverAt = atOnce
	}
	answer := r.startWithSchema(ctx, start, cm.Message, msg)
	return func() error {
		defer cancel()
		if err := answer(); err != nil {
			return err
		}
		if err := cm.Consumer.AckID(cm.ID()); err != nil {
			return fmt.Errorf("%w: %w", ErrNotAcknowledged, err)
		}
		return nil
	}
}
