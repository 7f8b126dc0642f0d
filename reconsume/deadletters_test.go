package reconsume_test

import (
	"fmt"
	"io/fs"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// A dead letter goes where its reason says, and says the reason itself.
func TestDeadLetterTo(t *testing.T) {
	const usual = "persistent://public/default/orders-sub-DLQ"
	for name, test := range map[string]struct {
		reason      error
		topic, text string
	}{
		"a topic":              {reconsume.DeadLetterTo("malformed", errBroker), "malformed", "broker says no"},
		"wrapped":              {fmt.Errorf("order 7: %w", reconsume.DeadLetterTo("malformed", errBroker)), "malformed", "order 7: broker says no"},
		"the outermost":        {reconsume.DeadLetterTo("b", reconsume.DeadLetterTo("a", errBroker)), "b", "broker says no"},
		"nil":                  {reconsume.DeadLetterTo("malformed", nil), "malformed", "no reason given"},
		"the usual one":        {reconsume.DeadLetterTo("orders-sub-DLQ", errBroker), usual, "broker says no"},
		"no topic":             {reconsume.DeadLetterTo("", errBroker), usual, "broker says no"},
		"no mark":              {errBroker, usual, "broker says no"},
		"one that panics":      {reconsume.DeadLetterTo("malformed", (*fs.PathError)(nil)), "malformed", "*fs.PathError, whose Error panics"},
		"an error that panics": {(*fs.PathError)(nil), usual, "*fs.PathError, whose Error panics"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, reconsume.Options{MaxDeliveries: 1}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
				require.NoError(t, r.DeadLetter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, test.reason))
				again := message{props: map[string]string{"RECONSUMETIMES": "1"}}
				require.NoError(t, r.Later(bg, pulsar.ConsumerMessage{Consumer: acks, Message: again}, reconsume.WithCause(test.reason)))
				require.Equal(t, 2, acks.acked)
				require.Len(t, c.sent[test.topic], 2)
				for _, letter := range c.sent[test.topic] {
					require.Equal(t, test.text, letter.Properties["EXCEPTION_MESSAGE"])
				}
				require.Len(t, c.created, 1)
				require.Equal(t, test.topic, c.created[0].Topic)
			})
		})
	}
}

// Topics that cannot be are errors, and the message is not acknowledged. Close closes the producers of all topics.
func TestBadTopicsOfDeadLetters(t *testing.T) {
	var fake *client
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		to := func(topic string) error {
			return r.DeadLetter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, reconsume.DeadLetterTo(topic, errBroker))
		}
		require.ErrorContains(t, to("non-persistent://public/default/a"), "want a persistent topic")
		for n := range 100 {
			require.NoError(t, to(fmt.Sprint("topic ", n)))
		}
		require.ErrorContains(t, to("one more"), "is one more, want one of the 100")
		require.NoError(t, to("topic 7"))
		require.Equal(t, 101, acks.acked)
		fake = c
	})
	require.Equal(t, 100, fake.closed)
}
