package reconsume_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// A dead letter goes to the topic that its reason names, and carries the text of the reason.
func TestDeadLetterGoesToTheTopicOfItsReason(t *testing.T) {
	const usual = "persistent://public/default/orders-sub-DLQ"
	for name, test := range map[string]struct {
		reason      error
		topic, text string
	}{
		"a topic": {reconsume.DeadLetterTo("malformed", errBroker), "malformed", "broker says no"},
		"wrapped": {fmt.Errorf("order 7: %w", reconsume.DeadLetterTo("malformed", errBroker)), "malformed",
			"order 7: broker says no"},
		"the outermost": {reconsume.DeadLetterTo("b", reconsume.DeadLetterTo("a", errBroker)), "b",
			"broker says no"},
		"nil":           {reconsume.DeadLetterTo("malformed", nil), "malformed", "no reason given"},
		"the usual one": {reconsume.DeadLetterTo("orders-sub-DLQ", errBroker), usual, "broker says no"},
		"no topic":      {reconsume.DeadLetterTo("", errBroker), usual, "broker says no"},
		"a plain error": {errBroker, usual, "broker says no"},
		"one that panics": {reconsume.DeadLetterTo("malformed", (*fs.PathError)(nil)), "malformed",
			"*fs.PathError, whose Error panics"},
		"an error that panics": {(*fs.PathError)(nil), usual, "*fs.PathError, whose Error panics"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, reconsume.Options{MaxDeliveries: 1},
				func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
					require.NoError(t, r.DeadLetter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}},
						test.reason))
					again := message{props: map[string]string{"RECONSUMETIMES": "1"}}
					require.NoError(t, r.Later(bg, pulsar.ConsumerMessage{Consumer: acks, Message: again},
						reconsume.WithCause(test.reason)))
					require.Equal(t, 2, acks.acked)
					topic := topicname.Full(test.topic)
					require.Len(t, c.sent[topic], 2)
					for _, letter := range c.sent[topic] {
						require.Equal(t, test.text, letter.Properties["EXCEPTION_MESSAGE"])
					}
					require.Len(t, c.created, 1)
					require.Equal(t, topic, c.created[0].Topic)
				})
		})
	}
}

// A letter that cannot go to the topic of DeadLetterTo goes to Options.DeadLetterTopic, and has the refused topic in a
// property. Close closes the producers of all topics.
func TestLetterForAnImpossibleTopicGoesToTheUsualOne(t *testing.T) {
	var fake *client
	var log bytes.Buffer
	o := reconsume.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	run(t, o, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		to := func(topic string) {
			require.NoError(t, r.DeadLetter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}},
				reconsume.DeadLetterTo(topic, errBroker)))
		}
		for n := range 100 {
			to(fmt.Sprint("topic ", n))
		}
		impossible := []string{"non-persistent://public/default/a", "one/more", "x-partition-y", "orders",
			"orders-sub-RETRY", "one more"}
		for n, topic := range impossible {
			to(topic)
			letter := c.sent[deadLetters][n]
			require.Equal(t, topic, letter.Properties["DEAD_LETTER_TOPIC"])
			require.Equal(t, errBroker.Error(), letter.Properties["EXCEPTION_MESSAGE"])
			require.Contains(t, log.String(), topic)
		}
		require.Len(t, c.sent[deadLetters], len(impossible))
		to("topic 7")
		require.Len(t, c.sent[topicname.Full("topic 7")], 2)
		fake = c
	})
	require.Equal(t, 101, fake.closed)
}

// If the broker refuses a producer for the topic of DeadLetterTo, the letter goes to Options.DeadLetterTopic.
func TestLetterForARefusedTopicGoesToTheUsualOne(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		c.refuse = func(o pulsar.ProducerOptions) error {
			if o.Topic != deadLetters {
				return errors.New("server error: AuthorizationError: no")
			}
			return nil
		}
		cm := pulsar.ConsumerMessage{Consumer: acks, Message: message{}}
		require.NoError(t, r.DeadLetter(bg, cm, reconsume.DeadLetterTo("secret", errBroker)))
		require.Equal(t, "secret", c.sent[deadLetters][0].Properties["DEAD_LETTER_TOPIC"])
		require.Equal(t, 1, acks.acked)
		c.refuse = func(pulsar.ProducerOptions) error { return errBroker }
		require.ErrorIs(t, r.DeadLetter(bg, cm, reconsume.DeadLetterTo("away", errBroker)), errBroker,
			"a later try may succeed")
	})
}

// Two replicas with one name for their producers both publish: the name of the second replica's producer gets a suffix.
func TestTakenProducerNameGetsASuffix(t *testing.T) {
	var log bytes.Buffer
	o := reconsume.Options{DeadLetterTopicProducerName: "letters",
		ProducerOptions: pulsar.ProducerOptions{Name: "retries"},
		Logger:          slog.New(slog.NewTextHandler(&log, nil))}
	run(t, o, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		c.refuse = func(o pulsar.ProducerOptions) error {
			if o.Name == "letters" || o.Name == "retries" {
				return fmt.Errorf("server error: ProducerBusy: Producer with name '%s' is already connected to "+
					"topic 'x'", o.Name)
			}
			return nil
		}
		cm := pulsar.ConsumerMessage{Consumer: acks, Message: message{}}
		require.NoError(t, r.DeadLetter(bg, cm, errBroker))
		require.NoError(t, r.LaterAfter(bg, cm, 0, nil))
		require.NoError(t, r.LaterAfter(bg, cm, 0, nil))
		require.Regexp(t, "^letters-[a-z]{5}$", c.created[0].Name)
		require.Equal(t, 2, strings.Count(log.String(), "another producer has the configured name"))
	})
}

// An access mode that allows only one producer causes a warning before the first letter. If the broker refuses a
// producer, the error asks for another access mode.
func TestAccessModeThatAllowsOneProducerCausesAWarning(t *testing.T) {
	for mode, want := range map[pulsar.ProducerAccessMode]string{
		pulsar.ProducerAccessModeExclusive:        "mode=Exclusive",
		pulsar.ProducerAccessModeWaitForExclusive: "mode=WaitForExclusive",
	} {
		var log bytes.Buffer
		o := reconsume.Options{ProducerOptions: pulsar.ProducerOptions{ProducerAccessMode: mode},
			Logger: slog.New(slog.NewTextHandler(&log, nil))}
		run(t, o, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			require.Contains(t, log.String(), want)
			c.refuse = func(o pulsar.ProducerOptions) error {
				return errors.New("server error: ProducerBusy: Topic has an existing exclusive producer: x")
			}
			err := r.DeadLetter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, errBroker)
			require.ErrorContains(t, err, "want ProducerAccessModeShared for all producers of the topic")
		})
	}
	var log bytes.Buffer
	run(t, reconsume.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))},
		func(*testing.T, *reconsume.Reconsumer, *client, *consumer) {})
	require.Empty(t, log.String())
}

// If a namespace allows only one producer for a topic, the usual producer publishes all messages.
func TestUsualProducerPublishesAllIfOnlyOneIsAllowed(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		have := map[string]int{}
		c.refuse = func(o pulsar.ProducerOptions) error {
			have[o.Topic]++
			if have[o.Topic] > 1 {
				return errors.New("server error: ProducerBusy: Topic 'x' reached max producers limit")
			}
			return nil
		}
		for _, payload := range []string{"small", strings.Repeat("x", 8000), strings.Repeat("x", 2<<20)} {
			cm := pulsar.ConsumerMessage{Consumer: acks, Message: message{payload: []byte(payload)}}
			require.NoError(t, r.DeadLetter(bg, cm, errBroker))
			require.NoError(t, r.LaterAfter(bg, cm, 0, nil))
		}
		require.Len(t, c.sent[deadLetters], 3)
		require.Len(t, c.sent[retries], 3)
	})
}

// A topic with another schema gets letters and retries without a schema, and a warning says so.
func TestTopicWithAnotherSchemaGetsMessagesWithoutASchema(t *testing.T) {
	var log bytes.Buffer
	o := reconsume.Options{Schema: pulsar.NewStringSchema(nil), Logger: slog.New(slog.NewTextHandler(&log, nil))}
	run(t, o, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		c.refuse = func(o pulsar.ProducerOptions) error {
			if o.Schema != nil {
				return errors.New("server error: IncompatibleSchema: Topic does not have schema to check")
			}
			return nil
		}
		cm := pulsar.ConsumerMessage{Consumer: acks, Message: message{}}
		require.NoError(t, r.DeadLetter(bg, cm, errBroker))
		require.NoError(t, r.LaterAfter(bg, cm, 0, nil))
		require.Len(t, c.sent[deadLetters], 1)
		require.Len(t, c.sent[retries], 1)
		require.Equal(t, 2, strings.Count(log.String(), "the topic has another schema"))
	})
}
