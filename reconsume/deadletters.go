package reconsume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// DeadLetterTo returns an error that wraps reason. A dead letter with this error as its reason goes to topic instead of
// Options.DeadLetterTopic; "" means Options.DeadLetterTopic. The error has the text of reason, and may itself be
// wrapped. A topic name without a namespace is of the namespace of the consumer's first topic. The first dead letter
// for a topic creates producers that stay until Close.
//
// If topic refuses the dead letter for good, the letter goes to Options.DeadLetterTopic. The letter's property
// DEAD_LETTER_TOPIC then names topic, and a warning is logged. This happens if topic has an impossible name, is not
// persistent, is a topic that the subscription reads, does not exist and cannot be created, is terminated, or refuses
// this client or a message of this size. It also happens if the Reconsumer already publishes to 100 other topics of
// DeadLetterTo.
func DeadLetterTo(topic string, reason error) error {
	if reason == nil {
		reason = errors.New("no reason given")
	}
	return publishing.To(topic, reason)
}

// maxTopics is how many dead letter topics there may be beside Options.DeadLetterTopic.
const maxTopics = 100

// deadLetters has the producers of the dead letter topics.
type deadLetters struct {
	o     *Options
	usual *topic
	open  func(name string) *topic

	mu     sync.Mutex
	others map[string]*topic // by whole name
}

// startLetter begins to publish a letter. If the topic refuses the letter for its size, startLetter publishes it in two
// chunks: the broker does not compare chunks with the topic's maxMessageSize.
func (t *topic) startLetter(ctx context.Context, msg *pulsar.ProducerMessage) (answer func() error) {
	answered := t.start(ctx, msg)
	return func() error {
		err := answered()
		if !isRefused(err) || t.pieces == nil || len(msg.Payload) < 2 || msg.Schema != nil {
			// chunks carry no schema version
			return err
		}
		p := t.pieces(uint(len(msg.Payload)+1) / 2)
		defer p.close()
		return p.start(ctx, msg, false)()
	}
}

// topicOf returns the topic of a DeadLetterTo. The error says why the letter of msg cannot go there.
func (d *deadLetters) topicOf(name string, msg pulsar.Message) (t *topic, err error) {
	switch want := cmp.Or(topicname.Want(name), topicname.WantNumber(name)); {
	case name == d.o.DeadLetterTopic:
		return d.usual, nil
	case want != "":
		return nil, fmt.Errorf("the name of the topic is invalid, want %s", want)
	case !topicname.IsPersistent(name):
		return nil, errors.New("the topic is not persistent")
	case topicname.Same(name, msg.Topic()), topicname.Same(name, d.o.RetryLetterTopic):
		return nil, errors.New("the subscription reads the topic, so the letter would come again and again")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.others[name]
	if !ok {
		if len(d.others) >= maxTopics {
			return nil, fmt.Errorf("there are %d other dead letter topics already", maxTopics)
		}
		if d.others == nil {
			d.others = map[string]*topic{}
		}
		t = d.open(name)
		d.others[name] = t
	}
	return t, nil
}

// DeadLetter publishes a message, with the reason in its properties, to the dead letter topic or to the topic of
// DeadLetterTo. Then it acknowledges the message. If the message came from Options.DeadLetterTopic, DeadLetter returns
// an error.
func (r *Reconsumer) DeadLetter(ctx context.Context, cm pulsar.ConsumerMessage, reason error) error {
	return r.deadLetter(ctx, cm, reason, &publishing.Note{})()
}

// deadLetter begins a DeadLetter.
func (r *Reconsumer) deadLetter(ctx context.Context, cm pulsar.ConsumerMessage, reason error,
	note *publishing.Note) (wait func() error) {
	if err := check(ctx, cm); err != nil {
		return failed(err)
	}
	return r.startDeadLetter(ctx, cm, reason, note, r.o.deadLetterProperties(cm.Message, nil, reason))
}

// startDeadLetter begins to publish a dead letter with a reason and properties.
func (r *Reconsumer) startDeadLetter(ctx context.Context, cm pulsar.ConsumerMessage, reason error,
	note *publishing.Note, props map[string]string) (wait func() error) {
	usual := r.o.DeadLetterTopic
	if topicname.Same(usual, cm.Topic()) {
		return failed(fmt.Errorf("reconsume: the dead letter topic is %s, want another one than the message's own: "+
			"the letter would come again and again", usual))
	}
	name := publishing.TopicOf(reason, usual)
	topic := topicname.In(r.o.Topic, name)
	t, err := r.deadLetters.topicOf(topic, cm.Message)
	note.Topic, note.Dead, note.Why = topic, true, reason
	instead := func(err error) {
		r.o.Logger.Warn("reconsume: a dead letter goes to the usual topic: the topic of DeadLetterTo refuses it",
			"topic", name, "usual", usual,
			"message", cm.ID().String(), "error", err)
		props[PropertyDeadLetterTopic] = name
		note.Topic = usual
	}
	switch {
	case err != nil:
		instead(err)
		return r.publish(ctx, r.deadLetters.usual.startLetter, cm, props, 0)
	case t == r.deadLetters.usual:
		return r.publish(ctx, t.startLetter, cm, props, 0)
	}
	return r.publish(ctx, func(ctx context.Context, msg *pulsar.ProducerMessage) (answer func() error) {
		answered := t.startLetter(ctx, msg)
		return func() error {
			err := answered()
			if !isFinal(err) {
				return err
			}
			instead(err)
			return r.deadLetters.usual.startLetter(ctx, msg)()
		}
	}, cm, props, 0)
}

// isFinal reports whether err means that a topic refuses the letter for as long as the topic's settings stay the same.
func isFinal(err error) bool {
	if err == nil {
		return false
	}
	if isRefused(err) || errors.Is(err, pulsar.ErrTopicTerminated) || errors.Is(err, pulsar.ErrTopicNotfound) {
		return true
	}
	return slices.ContainsFunc([]string{"TopicNotFound", "TopicTerminated", "AuthorizationError", "NotAllowedError",
		"InvalidTopicName",
		"reached max producers limit", "existing exclusive producer", "ProducerFenced"}, func(code string) bool {
		return strings.Contains(err.Error(), code)
	})
}

// topics returns the dead letter topics that have producers.
func (d *deadLetters) topics() []*topic {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append(slices.Collect(maps.Values(d.others)), d.usual)
}
