package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// If the error names no topic, or one that is not allowed, the letter goes to the Consumer's dead letter topic.
func TestDeadLetterGoesToTheTopicThatItsErrorNames(t *testing.T) {
	to := func(topic string) error { return redelivery.DeadLetterTo(topic, errTest) }
	for name, c := range map[string]struct {
		returns error
		topic   string
	}{
		"permanent":               {worker.Permanent(to("malformed")), "malformed"},
		"around permanent":        {redelivery.DeadLetterTo("malformed", worker.Permanent(errTest)), "malformed"},
		"a last delivery":         {to("refused"), "refused"},
		"RetryAfter":              {worker.RetryAfter(time.Second, to("refused")), "refused"},
		"the Consumer's topic":    {errTest, deadLetters},
		"a topic that is refused": {to("non-persistent://public/default/a"), deadLetters},
	} {
		for kind, start := range map[string]func(*rig) func() error{
			"": func(t *rig) func() error {
				_, stop := t.start(func(context.Context, pulsar.Message) error { return c.returns })
				return stop
			},
			" in key order": func(t *rig) func() error {
				_, stop := t.start(func(context.Context, pulsar.Message) error { return c.returns }, worker.WithKeyOrder())
				return stop
			},
			" by a classifier": func(t *rig) func() error {
				_, stop := t.start(func(context.Context, pulsar.Message) error { return errTest },
					worker.WithClassifier(func(error) error { return c.returns }))
				return stop
			},
			" in a batch": func(t *rig) func() error {
				_, stop := t.startBatch(worker.Batch{}, func(context.Context, []pulsar.Message) error { return worker.BatchError{0: c.returns} })
				return stop
			},
		} {
			t.Run(name+kind, func(t *testing.T) {
				virtually(t, withDeadLetters(2), func(t *rig) {
					stop := start(t)
					t.broker.Publish("orders", &pulsar.ProducerMessage{Payload: []byte("tea"), Key: "a"})
					t.sleep(time.Hour)
					require.NoError(t, stop())
					letters := t.broker.Published(c.topic)
					require.Len(t, letters, 1)
					require.Empty(t, t.broker.Unacked())
					for _, letter := range letters {
						require.Equal(t, errTest.Error(), letter.Properties["EXCEPTION_MESSAGE"])
					}
				}, redelivery.WithNackRedeliveryDelay(time.Minute))
			})
		}
	}
}
