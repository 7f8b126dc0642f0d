// Package reconsume publishes a message that could not be processed to a retry topic or a dead letter topic, and then
// acknowledges it. The broker delivers a retry again after a delay. Unlike the delay of a nack, this delay survives a
// restart of the process. Retry topics work as in the Java client. Delay levels come from PIP-94, a draft that no other
// Pulsar client implements.
//
// Topics and properties have the same names as in the Java and Go clients, so each client can read the retries of the
// others. docs/properties.md lists the properties.
package reconsume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

var (
	// ErrNoLevels says that LaterLevel was called, but Options.Backoff is not a backoff.DelayLevels.
	ErrNoLevels = errors.New("reconsume: the policy has no delay levels")
	// ErrClosed says that the Reconsumer is closed.
	ErrClosed = errors.New("reconsume: closed")
	// ErrNotAcknowledged says that the message was published but could not be acknowledged. It may come twice.
	ErrNotAcknowledged = errors.New("reconsume: published, but not acknowledged")
	// ErrDelayRefused says that the broker refused a message. Either the delay is longer than the namespace allows
	// (maxDeliveryDelayInMillis), or the message, with the properties of a retry or a dead letter, is larger than the
	// topic allows (its maxMessageSize policy). The broker does not say which. Nothing was published. pulsar-client-go
	// only logs this, so the Reconsumer finds out after five seconds without an answer. Meanwhile other messages to the
	// topic wait. For ten minutes after that, it publishes no message that has this delay or a longer one and is as
	// large or larger. If the broker begins to refuse what it accepted before, the next calls fail at their deadlines;
	// whether their messages were published is then unknown.
	//
	// There are two exceptions. A Consumer of package redelivery that reads its own retry topic publishes the retry
	// without a delay, and holds it back. A dead letter is published in two chunks, which the broker does not compare
	// with maxMessageSize.
	ErrDelayRefused = errors.New("reconsume: the namespace does not allow such a delay, or the topic does " +
		"not allow so large a message (maxMessageSize)")

	errNoMessage = errors.New("reconsume: message or its Consumer is nil, want one that was received")
	// The retry or dead letter would be encrypted with the producer's keys, or not at all, and the original would be
	// acknowledged: no consumer could ever decrypt the payload.
	errEncrypted = errors.New("reconsume: the message could not be decrypted, and would lose its keys: nothing is " +
		"published")
)

const maxDelay = 100 * 365 * 24 * time.Hour // the client counts in nanoseconds since 1970

// Reconsumer publishes messages to the retry topic and the dead letter topic of one subscription. It is safe for
// concurrent use. Messages published at the same time go to the broker together.
//
// Every method that publishes waits until the broker has confirmed the message, then acknowledges it at its consumer.
// It returns an error if either failed. After an error the message is not acknowledged; the exception is
// ErrNotAcknowledged, after which it may be acknowledged or not. A call whose context ends may have published the
// message. If the context has no deadline, a call takes at most Options.OperationTimeout. For a message that could not
// be decrypted (ConsumerCryptoFailureActionConsume) the method returns an error, since the copy would lose the keys.
type Reconsumer struct {
	o           Options
	retries     *topic
	schemas     *schemas
	deadLetters deadLetters
	ctx         context.Context // ends with Close
	close       context.CancelFunc
}

// New returns a Reconsumer that publishes with client. It creates producers only when there are messages to publish.
func New(client pulsar.Client, o Options) (*Reconsumer, error) {
	if client == nil {
		return nil, errors.New("reconsume: client is nil, want a pulsar.Client")
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Reconsumer{o: o}
	r.ctx, r.close = context.WithCancel(context.Background())
	r.schemas = newSchemas(r.ctx, o.Schema)
	create := func(options func() pulsar.ProducerOptions) *producer {
		return &producer{topic: options().Topic, pending: cmp.Or(o.ProducerOptions.MaxPendingMessages, 1000),
			timeout: o.OperationTimeout,
			closed:  r.ctx, create: func(v *verdict) (pulsar.Producer, error) {
				return o.createProducer(client, func() pulsar.ProducerOptions {
					p := options()
					p.BackOffPolicyFunc = v.watch(p.BackOffPolicyFunc)
					return p
				})
			}}
	}
	open := func(options func() pulsar.ProducerOptions) *topic {
		usual, encrypted := create(options), o.ProducerOptions.Encryption != nil
		if o.ProducerOptions.ProducerAccessMode != pulsar.ProducerAccessModeShared {
			usual.only = true
			return newTopic(usual, usual, encrypted)
		}
		return newTopic(usual, create(single(options)), encrypted)
	}
	r.retries = open(o.retryProducer)
	r.deadLetters.o = &r.o
	r.deadLetters.open = func(name string) *topic {
		options := func() pulsar.ProducerOptions { return o.deadLetterProducer(name) }
		t := open(options)
		if !t.usual.only {
			t.pieces = func(chunk uint) *producer {
				return create(single(func() pulsar.ProducerOptions {
					p := options()
					p.ChunkMaxMessageSize = chunk
					return p
				}))
			}
		}
		return t
	}
	r.deadLetters.usual = r.deadLetters.open(o.DeadLetterTopic)
	return r, nil
}

// RetryTopic returns the topic that retries are published to.
func (r *Reconsumer) RetryTopic() string { return r.o.RetryLetterTopic }

// DeadLetterTopic returns the topic that dead letters are published to.
func (r *Reconsumer) DeadLetterTopic() string { return r.o.DeadLetterTopic }

// Later publishes a message to the retry topic, with the policy's delay: the first time Backoff.Next(0), which is level
// 1 of delay levels, and so on. A message that was reconsumed Options.MaxDeliveries times goes to the dead letter topic
// instead, without a delay.
//
// With delay levels, the property RECONSUMETIMES decides the level. After LaterLevel, Later uses the next level
// instead. The last level repeats. These properties count only on a message from the retry topic: on any other message
// they are another consumer's, or forged, and Later begins with the first delay.
func (r *Reconsumer) Later(ctx context.Context, cm pulsar.ConsumerMessage, options ...LaterOption) error {
	if err := check(ctx, cm); err != nil {
		return err
	}
	how, err := r.policy(cm.Message)
	if err != nil {
		return err
	}
	return r.settle(ctx, cm, with(how, options))
}

// settle publishes a retry, and waits for the outcome unless there is a callback.
func (r *Reconsumer) settle(ctx context.Context, cm pulsar.ConsumerMessage, how retry) error {
	wait := r.publishRetry(ctx, cm, how, &publishing.Note{}, r.retries.start)
	if how.Callback == nil {
		return wait()
	}
	go func() { how.Callback(wait()) }()
	return nil
}

// policy asks the policy how to reconsume a message.
func (r *Reconsumer) policy(msg pulsar.Message) (how retry, err error) {
	if msg == nil {
		return how, errNoMessage
	}
	levels, _ := r.o.Backoff.(backoff.DelayLevels)
	if last := delayLevel(msg.Properties(), levels); last > 0 && r.o.isOwnRetry(msg) {
		return r.level(min(last+1, len(levels)))
	}
	return retry{Delay: r.o.Backoff.Next(r.o.reconsumeTimes(msg))}, nil
}

// level returns how to reconsume a message with a delay level.
func (r *Reconsumer) level(level int) (how retry, err error) {
	levels, ok := r.o.Backoff.(backoff.DelayLevels)
	if !ok {
		return how, fmt.Errorf("%w: it is a %T, want a backoff.DelayLevels", ErrNoLevels, r.o.Backoff)
	}
	how.Level = level
	how.Delay, err = levels.Level(level)
	return how, err
}

// check returns an error if the context has ended, or if the message was not received or cannot be published. The
// context may be nil.
func check(ctx context.Context, cm pulsar.ConsumerMessage) error {
	if ctx != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if cm.Message == nil || cm.Consumer == nil {
		return errNoMessage
	}
	if cm.GetEncryptionContext() != nil {
		return errEncrypted
	}
	return nil
}

// LaterLevel does what Later does, with the delay of a level, counted from 1. It returns ErrNoLevels if the policy has
// no levels, and an error for an unknown level. (The clients of Tencent and RocketMQ take the nearest level.)
func (r *Reconsumer) LaterLevel(ctx context.Context, cm pulsar.ConsumerMessage, level int,
	options ...LaterOption) error {
	if err := check(ctx, cm); err != nil {
		return err
	}
	how, err := r.level(level)
	if err != nil {
		return err
	}
	return r.settle(ctx, cm, with(how, options))
}

// LaterAfter does what Later does, with a delay in place of the policy's, and with properties that are added to the
// message's own. properties may be a copy of the message's own: properties that Pulsar's clients set themselves are
// ignored. A negative delay counts as 0, and a delay of more than a hundred years as a hundred years.
//
// The broker delays messages only on Shared and Key_Shared subscriptions, and by its own clock, by default with a tick
// of one second. If the delay is longer than the namespace allows, the error is ErrDelayRefused.
func (r *Reconsumer) LaterAfter(ctx context.Context, cm pulsar.ConsumerMessage, delay time.Duration,
	properties map[string]string, options ...LaterOption) error {
	if err := check(ctx, cm); err != nil {
		return err
	}
	return r.settle(ctx, cm, with(retry{Delay: delay, Properties: properties}, options))
}

// publishRetry publishes a retry with start, or a dead letter if the message was reconsumed MaxDeliveries times.
func (r *Reconsumer) publishRetry(ctx context.Context, cm pulsar.ConsumerMessage, how retry, note *publishing.Note,
	start starter) (wait func() error) {
	if err := check(ctx, cm); err != nil {
		return failed(err)
	}
	if n := r.o.reconsumeTimes(cm.Message); n >= r.o.MaxDeliveries && !how.Nacked { // nacks have a limit of their own
		why, props := how.Cause, r.o.deadLetterProperties(cm.Message, how.Properties, how.Cause)
		if why == nil {
			why = fmt.Errorf("reconsumed %d times", n)
			if !saysCause(props) {
				r.o.setCause(props, why)
			}
		}
		note.Reason = publishing.MaxDeliveries
		props[pulsar.SysPropertyReconsumeTimes] = strconv.FormatUint(uint64(n)+1, 10) // as the other clients count
		return r.startDeadLetter(ctx, cm, why, note, props)
	}
	how.Delay = min(max(0, how.Delay), maxDelay)
	note.Topic, note.Delay = r.o.RetryLetterTopic, how.Delay
	return r.publish(ctx, start, cm, r.o.retryProperties(cm.Message, how), how.Delay)
}

// Close closes the producers. Calls in flight return ErrClosed. A producer that is still being created is closed when
// it is ready. A second Close does nothing.
func (r *Reconsumer) Close() {
	r.close()
	var closing sync.WaitGroup // each producer may take half a second
	for _, t := range append(r.deadLetters.topics(), r.retries) {
		closing.Go(t.usual.close)
		closing.Go(t.single.close)
	}
	closing.Wait()
}
