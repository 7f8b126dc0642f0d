package reconsume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	usual *letterTopic
	open  func(topic string) *letterTopic

	mu     sync.Mutex
	others map[string]*letterTopic // by whole name
}

// letterTopic publishes to one dead letter topic, in the order of the calls.
type letterTopic struct {
	outlet
	alone  outlet                     // for messages larger than any before
	pieces func(chunk uint) *producer // returns a producer of chunks of that size; nil if only one producer is allowed
	sizes  sizes
	order  order
}

// start begins to publish a letter. If the topic refuses the letter for its size, start publishes the letter in two
// chunks: the broker does not compare chunks with the topic's maxMessageSize.
func (t *letterTopic) start(ctx context.Context, msg *pulsar.ProducerMessage) (answer func() error) {
	answered := t.startWhole(ctx, msg)
	return func() error {
		err := answered()
		if !isRefused(err) || t.pieces == nil || len(msg.Payload) < 2 || msg.Schema != nil {
			// chunks carry no schema version
			return err
		}
		p := t.pieces(uint(len(msg.Payload)+1) / 2)
		defer p.close()
		return p.start(ctx, msg)()
	}
}

func (t *letterTopic) startWhole(ctx context.Context, msg *pulsar.ProducerMessage) (answer func() error) {
	bytes := bytesOf(msg)
	tried, err := t.sizes.begin(ctx, 0, bytes)
	switch {
	case err != nil:
		return failed(err)
	case !tried:
		return t.sizes.end(0, bytes, t.order.start(ctx, t.alone.producerFor(msg), msg))
	}
	answered := t.order.start(ctx, t.producerFor(msg), msg)
	return func() error {
		err := answered()
		if err != nil {
			t.sizes.doubt()
		}
		return err
	}
}

// topicOf returns the producers for a topic of DeadLetterTo. The error says why the letter of msg cannot go there.
func (d *deadLetters) topicOf(topic string, msg pulsar.Message) (t *letterTopic, err error) {
	switch want := cmp.Or(topicname.Want(topic), topicname.WantNumber(topic)); {
	case topic == d.o.DeadLetterTopic:
		return d.usual, nil
	case want != "":
		return nil, fmt.Errorf("the name of the topic is invalid, want %s", want)
	case !topicname.IsPersistent(topic):
		return nil, errors.New("the topic is not persistent")
	case topicname.Same(topic, msg.Topic()), topicname.Same(topic, d.o.RetryLetterTopic):
		return nil, errors.New("the subscription reads the topic, so the letter would come again and again")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.others[topic]
	if !ok {
		if len(d.others) >= maxTopics {
			return nil, fmt.Errorf("there are %d other dead letter topics already", maxTopics)
		}
		if d.others == nil {
			d.others = map[string]*letterTopic{}
		}
		t = d.open(topic)
		d.others[topic] = t
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
			"message", cm.ID(), "error", err)
		props[PropertyDeadLetterTopic] = name
		note.Topic = usual
	}
	switch {
	case err != nil:
		instead(err)
		return r.publish(ctx, r.deadLetters.usual.start, cm, props, 0)
	case t == r.deadLetters.usual:
		return r.publish(ctx, t.start, cm, props, 0)
	}
	return r.publish(ctx, func(ctx context.Context, msg *pulsar.ProducerMessage) (answer func() error) {
		answered := t.start(ctx, msg)
		return func() error {
			err := answered()
			if !isFinal(err) {
				return err
			}
			instead(err)
			return r.deadLetters.usual.start(ctx, msg)()
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

func (d *deadLetters) outlets() []outlet {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := []outlet{d.usual.outlet, d.usual.alone}
	for _, t := range d.others {
		all = append(all, t.outlet, t.alone)
	}
	return all
}
