package deadletter_test

import (
	"context"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

// The journal has an unfinished replay. Other subscriptions stay.
func TestUnsubscribeRemovesTheSubscriptionAndTheJournal(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(2)
	b.subscribe(tp.dlq, "audit").Close()
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(20)...)
	d := b.open(tp.dlq)
	require.ErrorIs(t, d.Unsubscribe(bg), deadletter.ErrNotSubscribed)
	ctx, cancel := context.WithCancel(bg)
	_, err := d.Replay(ctx, deadletter.ReplayOptions{Rate: 20, Progress: func(r deadletter.Report) {
		if r.Done > 3 {
			cancel()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, d.Unsubscribe(bg))
	require.Equal(t, -1, b.backlog(tp.dlq, own))
	require.Equal(t, 20, b.backlog(tp.dlq, "audit"))
	require.Len(t, peek(t, d), 20)
	report, err := d.Replay(bg, deadletter.ReplayOptions{Max: 1})
	require.NoError(t, err)
	require.False(t, report.Resumed)

	// audit is a subscription like one of InitialSubscriptionName, without a consumer
	other := b.open(tp.dlq, func(o *deadletter.Options) { o.Subscription = "audit" })
	require.NoError(t, other.Unsubscribe(bg))
	require.Equal(t, -1, b.backlog(tp.dlq, "audit"))
	require.ErrorIs(t, b.open(tp.dlq+"x").Unsubscribe(bg), deadletter.ErrNoTopic)
}
