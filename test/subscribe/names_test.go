package subscribe

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// Upstream cannot open a topic with -partition- in its name unless a number follows the last dash. Without the check, a
// name derived from such a subscription or topic would cause an error only at the first dead letter, or after a long
// wait for the log.
func TestNamesThatUpstreamRefusesAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	dead := redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 2,
		InitialSubscriptionName: "see"})
	named := func(topic string) redelivery.Option {
		return redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 2, Topic: topic,
			InitialSubscriptionName: "see"})
	}
	log := redelivery.WithAttemptLog(redelivery.AttemptLog{OpenTimeout: time.Minute})
	for name, c := range map[string]struct {
		topic, subscription string
		option              redelivery.Option
		want                string // "" for no error
	}{
		"subscription, dead letters":        {"", "x-partition-1", dead, "-x-partition-1-DLQ"},
		"subscription, log":                 {"", "x-partition-1", log, "-x-partition-1-ATTEMPTS"},
		"topic, dead letters":               {"-partition-eu-1", "x", dead, "-partition-eu-1-x-DLQ"},
		"topic, log":                        {"-partition-eu-1", "x", log, "-partition-eu-1-x-ATTEMPTS"},
		"the dead letter topic":             {"", "x", named("dead-partition-b"), "dead-partition-b"},
		"subscription, another topic":       {"", "x-partition-1", named("dead"), ""},
		"subscription, of one partition":    {"", "x-partition-1", named("dead-partition-1"), ""},
		"topic that looks like a partition": {"-partition-5", "x", dead, ""},
		"subscription without a number":     {"", "x-partition", dead, "-x-partition-DLQ"},
	} {
		t.Run(name, func(t *testing.T) {
			topic := b.NewTopic(0)
			began := time.Now()
			consumer, err := redelivery.Subscribe(b.Client,
				pulsar.ConsumerOptions{Topic: topic + c.topic, SubscriptionName: c.subscription, Type: pulsar.Shared},
				c.option)
			if c.want == "" {
				require.NoError(t, err)
				consumer.Close()
				return
			}
			if err == nil {
				consumer.Close()
			}
			require.ErrorIs(t, err, redelivery.ErrInvalidOption)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "a number after its last dash")
			require.Less(t, time.Since(began), 10*time.Second)
		})
	}
}
