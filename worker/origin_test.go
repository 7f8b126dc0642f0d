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

// An application that passes properties on may publish several messages with the same origin. Each of them is
// acknowledged when it succeeds.
func TestMessagesOfTheSameOriginAreAcknowledgedSeparately(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		succeeded := newCalls()
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			switch {
			case string(msg.Payload()) == "slow":
				time.Sleep(10 * time.Second)
			case msg.RedeliveryCount() == 0:
				return errTest
			}
			succeeded.note(msg)
			return nil
		}, worker.WithConcurrency(2))
		for _, payload := range []string{"slow", "fails"} {
			t.broker.Publish("orders", &pulsar.ProducerMessage{Payload: []byte(payload), Properties: map[string]string{
				pulsar.PropertyOriginMessageID: "7:7:0", pulsar.SysPropertyOriginMessageID: "7:7:0"}})
		}
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Empty(t, t.broker.Unacked())
		require.Equal(t, []string{"fails", "slow"}, succeeded.what)
		require.EqualValues(t, 2, w.Stats().Succeeded)
	}, redelivery.WithNackRedeliveryDelay(time.Second))
}
