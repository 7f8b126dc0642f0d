package redelivery

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/partition"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/internal/upstream"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// DeadLetterPolicy says when a message becomes a dead letter, and how retries and dead letters are published. A zero
// field means its default.
type DeadLetterPolicy struct {
	// MaxDeliveries is how often a message is delivered: after the last delivery a nack or an ack timeout makes it a
	// dead letter. If a nack moves the message to the retry topic (WithNackRetryTopic), its deliveries so far still
	// count; after a ReconsumeLater the count begins again. Set it or MaxReconsumes; with WithReconsumeBackoff or
	// WithReconsumer both may be 0, for no limit. reconsume.Unlimited sets no limit, for a policy that only DeadLetter
	// and worker.Permanent need.
	MaxDeliveries uint32
	// MaxReconsumes is how often a message may be published to the retry topic; the next ReconsumeLater method
	// publishes a dead letter. It needs a retry topic: RetryEnable or WithReconsumeBackoff. Default: MaxDeliveries or,
	// if that is 0, no limit.
	MaxReconsumes uint32

	// Topic is where dead letters go. A name without a namespace, such as orders-DLQ, is of the namespace of the
	// consumer's first topic. Default: <topic>-<subscription>-DLQ, of the first topic, without -partition-N.
	Topic string
	// RetryTopic is where retries go. A name without a namespace is as in Topic. It needs RetryEnable or
	// WithReconsumeBackoff. Default: <topic>-<subscription>-RETRY.
	RetryTopic string
	// InitialSubscriptionName is a durable subscription of the dead letter topic. The broker creates it before the
	// first dead letter, so that none is deleted unread. It keeps the dead letters until a consumer acknowledges them
	// there or removes the subscription; package deadletter replays and purges through another subscription. Default:
	// none, and a warning.
	InitialSubscriptionName string
	// ProducerName is the name of the dead letter producer. Only one producer at a time may have it: that of a second
	// replica gets a suffix, and a warning is logged. Default: a name made of the topic, the subscription and random
	// letters.
	ProducerName string
	// ProducerOptions are for the producers of both topics; see reconsume.Options. With Decryption they need
	// Encryption; a message that ConsumerCryptoFailureActionConsume hands over without decrypting it is not published,
	// which is an error. Default: LZ4 compression.
	ProducerOptions pulsar.ProducerOptions
	// OmitCause leaves the error's text out of retries and dead letters (EXCEPTION_MESSAGE), and out of the log.
	// Default: false.
	OmitCause bool
	// Discard acknowledges a message that would become a dead letter, by DeadLetter too, and publishes nothing: the
	// message is gone. Each is logged at Warn and reported as Discarded. It needs MaxDeliveries or MaxReconsumes, and
	// excludes Topic, InitialSubscriptionName, ProducerName and WithReconsumer; DeadLetterTo has no effect. Default:
	// false.
	Discard bool
}

// DeadLetterPolicyOf returns the DeadLetterPolicy that DLQ in pulsar.ConsumerOptions stands for. Use it to add fields
// that DLQ lacks. A topic name without a namespace is of public/default in DLQ, as in pulsar-client-go: the
// DeadLetterPolicy has the whole name.
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

// publisher publishes retries and dead letters.
type publisher struct {
	publishing.Publisher                       // nil without retries and dead letters
	own                  *reconsume.Reconsumer // Close closes it; nil if it is the caller's
	retryTopic           string                // its full name; messages of it may come early; "" if no consumer reads it
	maxDeliveries        uint32                // after which a message is a dead letter; 0 for none
}

// newPublisher returns one that publishes by the Reconsumer of WithReconsumer, if there is one.
func newPublisher(s *settings, policy DeadLetterPolicy) *publisher {
	p := &publisher{maxDeliveries: policy.MaxDeliveries}
	if s.reconsumer != nil {
		p.Publisher, p.retryTopic = s.reconsumer.Publisher(false), topicname.Full(s.reconsumer.RetryTopic())
	}
	if policy.Discard {
		p.discards(policy)
	}
	return p
}

// subscribed is the retry topic that the Consumer subscribes to by itself; "" if there is none.
func (p *publisher) subscribed() string {
	if p.own == nil {
		return ""
	}
	return p.retryTopic
}

// noRetryTopic returns an error if there is no retry topic.
func (p *publisher) noRetryTopic() error {
	if p.retryTopic == "" {
		return ErrNoRetryTopic
	}
	return nil
}

// noDeadLetterTopic returns an error if there is no dead letter topic.
func (p *publisher) noDeadLetterTopic() error {
	if p.Publisher == nil {
		return noDeadLetterTopic{}
	}
	return nil
}

// isRetry reports whether a message came from the retry topic.
func (p *publisher) isRetry(msg pulsar.Message) bool {
	return p.retryTopic != "" && publishing.IsFrom(p.retryTopic, msg)
}

func (p *publisher) close() {
	if p.own != nil {
		p.own.Close()
	}
}

// givenUp is the note of a message that is to be a dead letter, with the reason that the application gave.
type givenUp struct{ reason error }

// giveUp has a message published as a dead letter. Until then it waits here as after any nack: if it cannot be
// published, it comes back and is given up again. had says that the application had it, so that this delivery counts.
func (c *Consumer) giveUp(d partition.Delivery, delay time.Duration, reason error, had bool) {
	deliveries := d.Count
	if had {
		deliveries++
	} else if before, ok := d.Note.(givenUp); ok { // it was not published in time
		reason = before.reason
		delay = max(delay, time.Second) // publishing may fail at once, and the policy return 0
	}
	because := publishing.MaxDeliveries
	if _, ok := reason.(*ttlError); ok { //nolint:errorlint // as nackAs made it
		because = publishing.TTL
	}
	why := reason
	if why == nil {
		why = fmt.Errorf("delivered %d times and not acknowledged", deliveries)
	}
	x := leaver{id: d.ID, hand: d.Hand, count: max(1, deliveries) - 1, attempts: deliveries}
	if c.givesBack(d, &x, partition.Failure{Delay: delay, Uncounted: !had, Note: givenUp{reason}}) && had {
		c.fails(&d, delay, nacking{reason: why})
	}
	c.leaveAside(x, "dead letter", func(ctx context.Context, cm pulsar.ConsumerMessage) (wait func() error) {
		publishing.Of(ctx).For(because)
		return c.publisher.StartDeadLetter(ctx, cm, why)
	})
}

// moveToRetryTopic has a message published to the retry topic that was nacked or snoozed.
func (c *Consumer) moveToRetryTopic(d partition.Delivery, delay time.Duration, snoozed bool) {
	until := time.Now().Add(delay)
	x := leaver{id: d.ID, hand: d.Hand, count: d.Count, attempts: d.Count + 1}
	if c.givesBack(d, &x, partition.Failure{Delay: delay, Uncounted: snoozed}) && !snoozed {
		c.fails(&d, delay, nacking{})
	}
	c.leaveAside(x, "moving a nacked message to the retry topic", func(ctx context.Context, cm pulsar.ConsumerMessage) (wait func() error) {
		return c.publisher.StartLater(ctx, cm, publishing.Retry{Delay: time.Until(until), Nacked: true, Snoozed: snoozed})
	})
}

// givesBack nacks a message that is to be published elsewhere.
func (c *Consumer) givesBack(d partition.Delivery, x *leaver, f partition.Failure) (had bool) {
	f.ID, f.Hand = d.ID, d.Hand
	if body, ok := d.Body.(pulsar.Message); ok {
		x.msg, f.Copy.Body = body, body
		f.Copy.Size, f.Copy.Buffer = upstream.Weigh(body)
	}
	now := c.lock()
	_, had, _ = c.group.Nack(now, f)
	c.unlock(now)
	if !had {
		x.msg = nil
	}
	return had
}

// leaveAside publishes a message elsewhere that waits, unless it is back before that. Messages are published in the
// order of the calls, and no more than maxUnderway wait for the broker's answer.
func (c *Consumer) leaveAside(x leaver, what string, start publication) {
	if x.msg == nil { // it comes from the broker when it is due
		return
	}
	c.letters.add(c, func() {
		select {
		case c.room <- struct{}{}:
		case <-c.cut.Done():
			return
		}
		finish, err := c.leave(c.cut, x, start)
		if err != nil {
			<-c.room
			return
		}
		go func() {
			err := finish()
			if <-c.room; err != nil && !c.isOver() {
				c.report(what, err, "message", x.msg.ID())
			}
		}()
	})
}

// maxUnderway limits the publications without a caller that wait for the broker's answer: as many as upstream's
// producer has by default.
const maxUnderway = 1000

// outlivesTTL reports whether the broker may delete a message before a delay is over.
func (s *settings) outlivesTTL(msg pulsar.Message, delay time.Duration) bool {
	return msg != nil && publishing.OutlivesTTL(msg.PublishTime(), s.ttl, delay)
}

// ttlError is the reason of a dead letter whose message would have been deleted.
type ttlError struct {
	delay, ttl time.Duration
	reason     error // of the nack; nil if there is none
}

func (e *ttlError) Error() string {
	text := fmt.Sprintf("a delay of %v ends after the TTL of %v", e.delay, e.ttl)
	if e.reason != nil {
		text += ": " + e.reason.Error()
	}
	return text
}

func (e *ttlError) Unwrap() error { return e.reason }

// discarder acknowledges messages that would become dead letters: DeadLetterPolicy.Discard. It leaves retries to the
// Publisher in it.
type discarder struct {
	publishing.Publisher // nil without a retry topic
	maxReconsumes        uint32
	isRetry              func(pulsar.Message) bool
}

func (d *discarder) StartDeadLetter(ctx context.Context, cm pulsar.ConsumerMessage, reason error) (wait func() error) {
	publishing.Of(ctx).DeadLetter("", reason)
	return func() error { return cm.Consumer.AckID(cm.ID()) }
}

func (d *discarder) StartLater(ctx context.Context, cm pulsar.ConsumerMessage, how publishing.Retry) (wait func() error) {
	n := uint32(0)
	if d.isRetry(cm.Message) {
		n = publishing.ReconsumeTimes(cm.Properties())
	}
	if n < d.maxReconsumes || how.Nacked { // nacks have a limit of their own
		return d.Publisher.StartLater(ctx, cm, how)
	}
	why := how.Cause
	if why == nil {
		why = fmt.Errorf("reconsumed %d times", n)
	}
	publishing.Of(ctx).For(publishing.MaxDeliveries)
	return d.StartDeadLetter(ctx, cm, why)
}

// discards has messages discarded that would become dead letters.
func (p *publisher) discards(policy DeadLetterPolicy) {
	p.Publisher = &discarder{p.Publisher, policy.MaxReconsumes, p.isRetry}
}

// publishesBy has r publish retries, and dead letters unless they are discarded: then the discarder comes first, by the
// same count.
func (p *publisher) publishesBy(r *reconsume.Reconsumer, policy DeadLetterPolicy, retries bool) {
	p.Publisher, p.own = r.Publisher(retries), r
	if policy.Discard {
		p.discards(policy)
	}
}

// checkDiscard returns an error if fields do not go together with Discard.
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
