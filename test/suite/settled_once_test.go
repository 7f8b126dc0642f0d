package suite

import (
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// No topic of several may be non-persistent where there are retries or dead letters.
func TestNonPersistentTopicAmongOthers(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	opts := b.Options(b.NewTopic(0), pulsar.Shared)
	opts.Topic, opts.Topics = "", []string{opts.Topic, "non-persistent://public/default/other"}
	opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 2, DeadLetterTopic: "dead"}
	_, err := redelivery.Subscribe(b.Client, opts)
	require.ErrorIs(t, err, redelivery.ErrInvalidOption)
	require.ErrorContains(t, err, "non-persistent://public/default/other")
}

// errorThat is an error whose text takes a call to make.
type errorThat func()

func (e errorThat) Error() string { e(); return "no coffee" }

// What is acknowledged while its failure is being recorded leaves no record.
func TestNoRecordOfWhatIsAckedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, batched := range []bool{false, true} {
		t.Run(fmt.Sprintf("batched %t", batched), func(t *testing.T) {
			t.Parallel()
			const n = 4
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			c := b.Subscribe(b.Options(topic, pulsar.Shared), redelivery.WithAttemptLog(redelivery.AttemptLog{}))
			b.Send(topic, n, batched)
			for range n {
				msg := testkit.Receive(t, c)
				var err error
				require.NoError(t, c.NackWithReason(msg, errorThat(func() { err = c.Ack(msg) })))
				require.NoError(t, err)
			}
			require.Eventually(t, func() bool { return c.AttemptLog().Stats().Records == 0 }, 15*time.Second, 20*time.Millisecond)
		})
	}
}
