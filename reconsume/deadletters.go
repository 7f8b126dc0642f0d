package reconsume

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// DeadLetterTo returns an error that wraps reason and sends its dead letter to topic instead of the usual dead letter topic; "" means the
// usual one. The error has the text of reason, and may itself be wrapped. topic must be persistent, and the subscription must not read
// it. The first dead letter for a topic creates producers that stay until Close. A Reconsumer publishes to at most 100 such topics; one
// more is an error.
func DeadLetterTo(topic string, reason error) error {
	if reason == nil {
		reason = errors.New("no reason given")
	}
	return publishing.To(topic, reason)
}

// maxTopics is how many dead letter topics there may be beside the usual one.
const maxTopics = 100

// deadLetters has the producers of the dead letter topics.
type deadLetters struct {
	usual *letterTopic
	open  func(topic string) *letterTopic

	mu     sync.Mutex
	others map[string]*letterTopic // by whole name
}

// letterTopic publishes to one dead letter topic, in the order of the calls.
type letterTopic struct {
	outlet
	alone outlet // of messages larger than any before
	sizes sizes
	order order
}

func (t *letterTopic) start(ctx context.Context, msg *pulsar.ProducerMessage) (answer func() error) {
	bytes := bytesOf(msg)
	tried, err := t.sizes.begin(ctx, 0, bytes)
	switch {
	case err != nil:
		return failed(err)
	case !tried:
		return t.sizes.end(0, bytes, t.order.start(ctx, t.alone.of(msg), msg))
	}
	answered := t.order.start(ctx, t.of(msg), msg)
	return func() error {
		err := answered()
		if err != nil {
			t.sizes.doubt()
		}
		return err
	}
}

// of returns the topic of a dead letter with a reason, and what publishes to it.
func (d *deadLetters) of(reason error, usual string) (topic string, t *letterTopic, err error) {
	topic = publishing.TopicOf(reason, usual)
	full := topicname.Full(topic)
	if full == topicname.Full(usual) {
		return usual, d.usual, nil
	}
	if !topicname.IsPersistent(topic) {
		return topic, t, fmt.Errorf("reconsume: the topic of DeadLetterTo is %s, want a persistent topic", topic)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.others[full]
	if !ok {
		if len(d.others) >= maxTopics {
			return topic, t, fmt.Errorf("reconsume: the topic of DeadLetterTo is %s, want one of the %d that there are already", topic, maxTopics)
		}
		if d.others == nil {
			d.others = map[string]*letterTopic{}
		}
		t = d.open(topic)
		d.others[full] = t
	}
	return topic, t, nil
}

// startDeadLetter begins to publish a dead letter with a reason and properties.
func (r *Reconsumer) startDeadLetter(ctx context.Context, cm pulsar.ConsumerMessage, reason error, props map[string]string) (wait func() error) {
	topic, t, err := r.deadLetters.of(reason, r.o.DeadLetterTopic)
	if err != nil {
		return failed(err)
	}
	if topicname.Same(topic, cm.Topic()) {
		return failed(fmt.Errorf("reconsume: the dead letter topic is %s, want another one than the message's own: it would come again and never end", topic))
	}
	publishing.Of(ctx).DeadLetter(topic, reason)
	return r.publish(ctx, t.start, cm, props, 0)
}

func (d *deadLetters) all() []outlet {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := []outlet{d.usual.outlet, d.usual.alone}
	for _, t := range d.others {
		all = append(all, t.outlet, t.alone)
	}
	return all
}
