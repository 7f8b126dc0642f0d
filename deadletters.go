package redelivery

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/partition"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// DeadLetterPolicy says when a message becomes a dead letter, and how retries and dead letters are published. A zero
// field means its default.
type DeadLetterPolicy struct {
	// MaxDeliveries is how often a message is delivered: after the last delivery a nack or an ack timeout makes it a
	// dead letter. If a nack moves the message to the retry topic (WithNackRetryTopic), its deliveries so far still
	// count; after a ReconsumeLater the count begins again. Set MaxDeliveries or MaxReconsumes; with
	// WithReconsumeBackoff or WithReconsumer both may be 0, for no limit. reconsume.Unlimited sets no limit: only
	// DeadLetter and worker.Permanent then make dead letters.
	MaxDeliveries uint32
	// MaxReconsumes is how often a message may be published to the retry topic; the next ReconsumeLater method
	// publishes a dead letter. It needs a retry topic: RetryEnable or WithReconsumeBackoff. Default: MaxDeliveries or,
	// if that is 0, no limit.
	MaxReconsumes uint32

	// Topic is where dead letters go. A name without a namespace, such as orders-DLQ, gets the namespace of the
	// consumer's first topic. Default: <topic>-<subscription>-DLQ, where <topic> is the first topic without
	// -partition-N.
	Topic string
	// RetryTopic is where retries go. A name without a namespace is completed as in Topic. RetryTopic needs RetryEnable
	// or WithReconsumeBackoff. Default: <topic>-<subscription>-RETRY.
	RetryTopic string
	// InitialSubscriptionName is a durable subscription of the dead letter topic. The broker creates it before the
	// first dead letter, so that none is deleted unread. The subscription keeps the dead letters until a consumer
	// acknowledges them there or removes the subscription. Package deadletter replays and purges through its own
	// subscription by default, the command redelivery dlq mostly through this one. Default: none, and a warning.
	InitialSubscriptionName string
	// ProducerName is the name of the dead letter producer. Only one producer at a time may have the name: the producer
	// of a second replica adds a suffix, and a warning is logged. Default: a name made of the topic, the subscription
	// and random letters.
	ProducerName string
	// ProducerOptions are for the producers of both topics; see reconsume.Options. If pulsar.ConsumerOptions has
	// Decryption, they need Encryption; a message that was not decrypted (ConsumerCryptoFailureActionConsume) is not
	// published, and the call returns an error. Default: LZ4 compression.
	ProducerOptions pulsar.ProducerOptions
	// OmitCause leaves the error's text out of retries and dead letters (EXCEPTION_MESSAGE), and out of the log.
	// Default: false.
	OmitCause bool
	// Discard acknowledges each message that would become a dead letter, also after a call of DeadLetter, and publishes
	// nothing: the message is gone. Each discarded message is logged at Warn and reported as Discarded. Discard needs
	// MaxDeliveries or MaxReconsumes, and excludes Topic, InitialSubscriptionName, ProducerName and WithReconsumer;
	// DeadLetterTo has no effect. Default: false.
	Discard bool
}

// DeadLetterPolicyOf returns a DeadLetterPolicy with the meaning of d, the DLQ of pulsar.ConsumerOptions. Use it to add
// fields that DLQ lacks. As in pulsar-client-go, a topic name without a namespace in d is in public/default; the
// DeadLetterPolicy has the full name.
func DeadLetterPolicyOf(d pulsar.DLQPolicy) DeadLetterPolicy {
	p := DeadLetterPolicy{MaxDeliveries: d.MaxDeliveries, MaxReconsumes: d.MaxDeliveries, Topic: d.DeadLetterTopic,
		RetryTopic: d.RetryLetterTopic, InitialSubscriptionName: d.InitialSubscriptionName,
		ProducerName: d.DeadLetterTopicProducerName, ProducerOptions: d.ProducerOptions}
	for _, topic := range []*string{&p.Topic, &p.RetryTopic} {
		if *topic != "" {
			*topic = topicname.Full(*topic)
		}
	}
	return p
}

// needsRetries reports whether a field is set that has no effect without a retry topic.
func (p *DeadLetterPolicy) needsRetries() bool {
	return p != nil && (p.RetryTopic != "" || p.MaxReconsumes > 0 && p.MaxDeliveries == 0)
}

// WithDeadLetterPolicy (default: DLQ of pulsar.ConsumerOptions) publishes a message to the dead letter topic when it
// was delivered or reconsumed too often. The option replaces DLQ, which has one limit for deliveries and reconsumes;
// giving both is an error. The option needs a client: that of Subscribe or WithClient. Together with WithReconsumer
// only MaxDeliveries has an effect, and Topic, if set, must be the Reconsumer's.
func WithDeadLetterPolicy(policy DeadLetterPolicy) Option {
	return func(s *settings) error {
		s.deadLetters = &policy
		return policy.checkDiscard()
	}
}

// WithDeadBeforeTTL (default: none) makes a message a dead letter before the time to live of its namespace (messageTTL)
// lets the broker delete it. A nack or a Snooze makes the dead letter at once if, at the end of its delay, the message
// would be older than ttl minus a margin: a tenth of ttl, but at most a minute. The dead letter has the reason
// ReasonTTL. Set ttl to the TTL of the namespace or the topic; it must be at least a second. The option needs dead
// letters, without DeadLetterPolicy.Discard. The age of a retry counts from its publication to the retry topic, as at
// the broker.
//
// It does not apply to NackID of a message that does not fit the memory limit, nor to a message that the application
// keeps for longer than ttl.
func WithDeadBeforeTTL(ttl time.Duration) Option {
	return func(s *settings) error {
		if ttl < time.Second {
			return invalid("WithDeadBeforeTTL", ttl, "1s or more")
		}
		s.DeadBeforeTTL = ttl
		return nil
	}
}

// checkDiscard refuses fields that Discard excludes, and Discard without a limit.
func (p *DeadLetterPolicy) checkDiscard() error {
	if !p.Discard {
		return nil
	}
	for field, value := range map[string]string{
		"Topic": p.Topic, "InitialSubscriptionName": p.InitialSubscriptionName, "ProducerName": p.ProducerName,
	} {
		if value != "" {
			return invalid("DeadLetterPolicy."+field, value, `"" with Discard, which publishes no dead letter`)
		}
	}
	if p.MaxDeliveries == 0 && p.MaxReconsumes == 0 {
		return invalid("DeadLetterPolicy.MaxDeliveries", 0, "1 or more with Discard")
	}
	return nil
}

// ttlError is the reason of a dead letter whose message could have expired while it waited.
type ttlError struct {
	delay, ttl time.Duration
	reason     error // why the message failed; nil if unknown
}

func (e *ttlError) Error() string {
	text := fmt.Sprintf("the message may expire before its delay of %v is over (TTL %v)", e.delay, e.ttl)
	if e.reason != nil {
		text += ": " + e.reason.Error()
	}
	return text
}

func (e *ttlError) Unwrap() error { return e.reason }

// makeDeadLetter publishes a message as a dead letter. Until the dead letter is published, the message waits as after
// any nack. If the dead letter cannot be published, the message comes back, and is given up again. had says that the
// application had the message: then this delivery counts.
func (c *Consumer) makeDeadLetter(d partition.Delivery, delay time.Duration, reason error, had bool) {
	deliveries := d.Count
	if had {
		deliveries++
	} else {
		reason, _ = d.Note.(error)      // of an earlier call that could not publish the dead letter
		delay = max(delay, time.Second) // otherwise a publication that fails at once would be repeated without a pause
	}
	because := publishing.MaxDeliveries
	if _, ok := reason.(*ttlError); ok { //nolint:errorlint // decideNack does not wrap it
		because = publishing.TTL
	}
	why := reason
	if why == nil {
		why = fmt.Errorf("delivered %d times and not acknowledged", deliveries)
	}
	d.Count = max(1, deliveries) - 1
	c.nackAndMove(d, partition.Failure{Delay: delay, Uncounted: !had, Note: reason}, why, "dead letter",
		func(ctx context.Context, cm pulsar.ConsumerMessage, note *publishing.Note) (wait func() error) {
			note.Reason = because
			return c.settings.publisher.StartDeadLetter(ctx, cm, why, note)
		})
}

// moveToRetryTopic publishes a nacked or snoozed message to the retry topic.
func (c *Consumer) moveToRetryTopic(d partition.Delivery, delay time.Duration, how nackOptions) {
	until := time.Now().Add(delay)
	c.nackAndMove(d, partition.Failure{Delay: delay, Uncounted: how.snoozed}, how.reason,
		"moving a nacked message to the retry topic",
		func(ctx context.Context, cm pulsar.ConsumerMessage, note *publishing.Note) (wait func() error) {
			return c.settings.publisher.StartLater(ctx, cm,
				publishing.Retry{Delay: time.Until(until), Nacked: true, Snoozed: how.snoozed}, note)
		})
}

// nackAndMove nacks a message and publishes it to another topic, on a goroutine of the Consumer, in the order of the
// calls. The message waits meanwhile. If it cannot be published, it comes back after f.Delay. If it comes back before
// the publication begins, it is not published.
func (c *Consumer) nackAndMove(d partition.Delivery, f partition.Failure, reason error, what string,
	start publication) {
	f.ID, f.Hand, f.Copy = d.ID, d.Hand, copyOf(d.Body.(pulsar.Message))
	now := c.lock()
	_, had, _ := c.group.Nack(now, f)
	c.unlockAndAct(now)
	if !had { // the application no longer has it
		return
	}
	if !f.Uncounted {
		c.recordFailure(&d, f.Delay, nackOptions{reason: reason})
	}
	c.letters.add(c, func() {
		_ = c.moveAsync(c.publishing, d, start, func(err error) {
			if err != nil && !c.isOver() {
				c.logFailed(what, err, "topic", d.ID.Topic, "message", d.Object)
			}
		})
	})
}

// moveAsync calls beginMove (retry.go) for a caller that does not wait. Unless moveAsync returns an error, a goroutine
// calls done with the outcome. moveAsync waits until fewer than maxUnderway publications are under way.
func (c *Consumer) moveAsync(ctx context.Context, d partition.Delivery, start publication,
	done func(error)) error {
	select {
	case c.underway <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ended.Done():
		return ErrClosed
	}
	finish, err := c.beginMove(ctx, d, start)
	if err != nil {
		<-c.underway
		return err
	}
	go func() {
		err := finish()
		<-c.underway // before done, which may reconsume
		done(err)
	}()
	return nil
}

// maxUnderway limits the publications that no caller waits for and that the broker has not answered. Upstream's
// producer has the same limit by default.
const maxUnderway = 1000
