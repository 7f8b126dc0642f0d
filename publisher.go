package redelivery

import (
	"cmp"
	"context"
	"fmt"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// openPublisher makes the publisher, and chooses the topics of retries and dead letters. The publisher's producers are
// created later, for the first messages (reconsume/producer.go).
func (s *settings) openPublisher() error {
	opts, policy, origin := s.opts, s.deadLetterPolicy, originOf(s.opts)
	s.setPublisher(s.reconsumer)
	switch {
	case s.reconsumer != nil: // its retry topic may be one that the consumer reads
		return cmp.Or(checkPersistent(topicsOf(opts)),
			checkUnread(opts, s.reconsumer.DeadLetterTopic(), "the dead letter topic"))
	case policy.MaxReconsumes == 0:
		return nil
	case policy.Discard && !s.retries:
		return checkPersistent(topicsOf(opts))
	case !s.isWrapped && (origin == "" || opts.SubscriptionName == ""):
		return nil // client.Subscribe returns the error
	}
	if err := cmp.Or(checkPersistent(topicsOf(opts)), s.checkDefaultTopic("WithDeadLetterPolicy", policy.Topic),
		checkName("the dead letter topic", policy.Topic), checkName("the retry topic", policy.RetryTopic)); err != nil {
		return err
	}
	if opts.DLQ != nil {
		s.warnOfShortName("ConsumerOptions.DLQ.DeadLetterTopic", opts.DLQ.DeadLetterTopic, origin)
		s.warnOfShortName("ConsumerOptions.DLQ.RetryLetterTopic", opts.DLQ.RetryLetterTopic, origin)
	}
	if s.retries && !s.isWrapped {
		legacyTopics(s.client, &policy, origin, opts.SubscriptionName)
	}
	r, err := reconsume.New(s.client, reconsume.Options{
		Topic:                       origin,
		Subscription:                opts.SubscriptionName,
		NonDurable:                  opts.SubscriptionMode == pulsar.NonDurable,
		ConsumerName:                opts.Name,
		RetryLetterTopic:            policy.RetryTopic,
		DeadLetterTopic:             policy.Topic,
		MaxDeliveries:               policy.MaxReconsumes,
		Backoff:                     s.Reconsume,
		ProducerOptions:             policy.ProducerOptions,
		DeadLetterTopicProducerName: policy.ProducerName,
		InitialSubscriptionName:     policy.InitialSubscriptionName,
		Schema:                      opts.Schema,
		Decrypts:                    opts.Decryption != nil,
		OmitCause:                   policy.OmitCause,
		Logger:                      s.logger,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidOption, err)
	}
	dead := r.DeadLetterTopic()
	if err := cmp.Or(checkName("the dead letter topic", dead),
		checkUnread(opts, dead, "the dead letter topic"),
		checkTopics(opts, r.RetryTopic(), "the retry topic")); err != nil {
		return err
	}
	if s.retries && dead == r.RetryTopic() {
		return invalid("the dead letter topic", dead, "another one than the retry topic")
	}
	s.setPublisher(r)
	return nil
}

// setPublisher sets the publisher to one that uses a Reconsumer, or to none if r is nil. With Discard, a discarder in
// front of it acknowledges messages that would become dead letters.
func (s *settings) setPublisher(r *reconsume.Reconsumer) {
	if r != nil {
		s.publisher, s.DeadLetterTopic = r.Publisher(s.retries), r.DeadLetterTopic()
		if s.retries || r == s.reconsumer {
			s.RetryTopic = topicname.Full(r.RetryTopic())
		}
		if r != s.reconsumer {
			s.owned = r
		}
	}
	if s.deadLetterPolicy.Discard {
		s.publisher = &discarder{s.publisher, s.deadLetterPolicy.MaxReconsumes, s.isRetry}
		s.DeadLetterTopic = ""
	}
}

// ownRetryTopic returns the retry topic that the Consumer subscribes to by itself, or "" for none.
func (s *settings) ownRetryTopic() string {
	if s.owned == nil {
		return ""
	}
	return s.RetryTopic
}

// isRetry reports whether a message came from the retry topic.
func (s *settings) isRetry(msg pulsar.Message) bool {
	return s.RetryTopic != "" && publishing.IsFrom(s.RetryTopic, msg)
}

func (s *settings) closePublisher() {
	if s.owned != nil {
		s.owned.Close()
	}
}

// discarder acknowledges messages that would become dead letters: DeadLetterPolicy.Discard. The embedded Publisher
// publishes retries.
type discarder struct {
	publishing.Publisher // nil without a retry topic
	maxReconsumes        uint32
	isRetry              func(pulsar.Message) bool
}

func (d *discarder) StartDeadLetter(_ context.Context, cm pulsar.ConsumerMessage, why error,
	note *publishing.Note) (wait func() error) {
	note.Dead, note.Why = true, why
	return func() error { return cm.Consumer.AckID(cm.ID()) }
}

func (d *discarder) StartLater(ctx context.Context, cm pulsar.ConsumerMessage,
	how publishing.Retry, note *publishing.Note) (wait func() error) {
	n := uint32(0)
	if d.isRetry(cm.Message) {
		n = publishing.ReconsumeTimes(cm.Properties())
	}
	if n < d.maxReconsumes || how.Nacked { // nacks have a limit of their own
		return d.Publisher.StartLater(ctx, cm, how, note)
	}
	why := how.Cause
	if why == nil {
		why = fmt.Errorf("reconsumed %d times", n)
	}
	note.Reason = publishing.MaxDeliveries
	return d.StartDeadLetter(ctx, cm, why, note)
}
