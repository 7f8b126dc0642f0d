package random

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/reconsume"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// wrapping is the way in which an application wraps a message before it passes it to the Consumer.
type wrapping int

const (
	unwrapped wrapping = iota
	decoding           // the wrapper has another payload
	renaming           // the wrapper has another payload and another topic
	byValue            // the wrapper is a pulsar.ConsumerMessage
	panicking          // the wrapper's Payload panics
	hollow             // the wrapper has only the id
	empty              // the wrapper has nothing, and is refused
	wrappings
)

func (w wrapping) String() string {
	return [...]string{"unwrapped", "decoding", "renaming", "byValue", "panicking", "hollow", "empty"}[w]
}

type (
	decodedMessage   struct{ pulsar.Message }
	renamedMessage   struct{ pulsar.Message }
	panickingMessage struct{ pulsar.Message }
	hollowMessage    struct {
		pulsar.Message
		id pulsar.MessageID
	}
)

const decodedPrefix = "decoded:"

func (m decodedMessage) Payload() []byte {
	return append([]byte(decodedPrefix), m.Message.Payload()...)
}
func (m decodedMessage) Unwrap() pulsar.Message   { return m.Message }
func (m renamedMessage) Unwrap() pulsar.Message   { return m.Message }
func (m panickingMessage) Unwrap() pulsar.Message { return m.Message }
func (renamedMessage) Topic() string              { return "persistent://public/default/another" }
func (panickingMessage) Payload() []byte          { panic("a payload of the application's") }
func (m hollowMessage) ID() pulsar.MessageID      { return m.id }

// wrap returns the message that the application passes to the Consumer.
func (a *randomApp) wrap(msg pulsar.Message) pulsar.Message {
	switch a.Wrap {
	case decoding:
		return decodedMessage{msg}
	case renaming:
		return renamedMessage{decodedMessage{msg}}
	case byValue:
		return pulsar.ConsumerMessage{Consumer: a.c, Message: msg}
	case panicking:
		return panickingMessage{msg}
	case hollow:
		return hollowMessage{id: msg.ID()}
	default:
		return msg
	}
}

// calls makes a call of the library, which must neither hang nor panic.
func (a *randomApp) calls(what string, call func() error) (err error) {
	defer a.guard.begin(what)()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s panics: %v", what, p)
			a.fault("%v", err)
		}
	}()
	return call()
}

// passEmpty passes an empty wrapper to the Consumer, which must refuse it.
func (a *randomApp) passEmpty() {
	if a.Wrap != empty || a.pairs.IntN(10) > 0 {
		return
	}
	nothing := decodedMessage{}
	for what, call := range map[string]func() error{
		"Ack":           func() error { return a.c.Ack(nothing) },
		"AckCumulative": func() error { return a.c.AckCumulative(nothing) },
		"NackWithDelay": func() error { return a.c.NackWithDelay(nothing, 0) },
		"Delivery":      func() error { _, err := a.c.Delivery(nothing); return err },
	} {
		if err := a.calls(what+" of an empty message", call); err == nil {
			a.fault("%s of an empty message returned no error", what)
		}
	}
	_ = a.calls("Nack of an empty message", func() error { a.c.Nack(nothing); return nil })
	_ = a.calls("RedeliveryCount of an empty message", func() error { a.c.RedeliveryCount(nothing); return nil })
}

// number returns the number of a message, and checks that the message is as it was published.
func (r *randomRun) number(msg pulsar.Message, how string) int {
	payload := string(msg.Payload())
	text := payload
	for strings.HasPrefix(text, decodedPrefix) {
		text = text[len(decodedPrefix):]
	}
	text, _, _ = strings.Cut(text, " ")
	n, err := strconv.Atoi(text)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || n >= len(r.fates) {
		r.faultLocked("a message comes %s with the payload %.40q, which was never published", how, payload)
		return 0
	}
	if f := r.fates[n]; payload != f.payload && !f.garbled {
		f.garbled = true
		r.faultLocked("message %d comes %s with another payload, %.40q, than it was published with, %.40q", n, how, payload, f.payload)
	}
	return n
}

// checkTopic checks that a delivered message names the topic to which it was published.
func (r *randomRun) checkTopic(n int, msg pulsar.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, topic := r.fates[n], msg.Topic()
	if topic != f.partition && !(r.Retry && topic == testkit.RetryTopic(r.topics[0])) {
		r.faultLocked("message %d comes from %s, and was published to %s", n, topic, f.partition)
	}
}

// checkOrigin checks that a dead letter names the topic to which its message was published.
func (r *randomRun) checkOrigin(n int, letter pulsar.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	properties, f := letter.Properties(), r.fates[n]
	for _, property := range []string{"REAL_TOPIC", reconsume.PropertyOriginTopic} {
		topic := properties[property]
		may := []string{f.partition, r.topics[0], testkit.RetryTopic(r.topics[0])}
		if topic != "" && !slices.Contains(may, topic) {
			r.faultLocked("the dead letter of message %d has the %s %s, but the message was published to %s", n, property, topic, f.partition)
		}
	}
}
