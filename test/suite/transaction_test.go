package suite

import (
	"bytes"
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
)

// transaction stands for one; the fake does not look at it.
type transaction struct{ pulsar.Transaction }

// An abort makes the broker send the message again, and nothing tells: what comes after AckWithTxn is the
// application's.
func TestAfterAnAbortMessagesAreHandedOut(t *testing.T) {
	wrapped(t, func(t *testing.T, c *redelivery.Consumer, inner *fake, _ *bytes.Buffer) {
		inner.deliver(1)
		require.NoError(t, c.NackWithDelay(receive(t, c), time.Millisecond))
		require.Eventually(t, func() bool { return len(inner.requests()) == 1 }, 10*time.Second, time.Millisecond)
		inner.deliver(1)
		require.NoError(t, c.AckWithTxn(receive(t, c), transaction{}))
		inner.deliver(1)
		msg := receive(t, c)
		require.NoError(t, c.Ack(msg))
		assert.Zero(t, c.Stats().Waiting)
		assert.Zero(t, c.Stats().Swallowed)
	}, atBroker)
}

// With batch-index acknowledgement the broker refuses the last message of a batch that a transaction acknowledges, and
// the transaction cannot end. Where it was switched on by default, AckWithTxn refuses messages of batches before.
func TestAckWithTxnOfABatchIsRefusedWithDefaultIndexAcks(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic(0)
	c := b.subscribe(b.options(topic, pulsar.Shared))
	b.send(topic, 2, true)
	msg := receive(t, c)
	require.ErrorContains(t, c.AckWithTxn(msg, transaction{}), "is of a batch of 2, want WithoutBatchIndexAcks")
	require.NoError(t, c.Ack(msg))
	require.NoError(t, c.Ack(receive(t, c)))
	b.settles(topic, 0)
}

// Upstream panics for a transaction that is not its own.
func TestAForeignTransaction(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic(0)
	c := b.subscribe(b.options(topic, pulsar.Shared))
	b.send(topic, 1, false)
	msg := receive(t, c)
	require.ErrorContains(t, c.AckWithTxn(msg, transaction{}), "suite.transaction")
	require.NoError(t, c.Ack(msg))
	b.settles(topic, 0)
}

// Transactions need a real broker, and one of their own: where they are on, every topic waits for what they left.
func TestTransactions(t *testing.T) {
	t.Parallel()
	if os.Getenv("PULSAR_URL") == "" {
		t.Skip("PULSAR_URL is not set")
	}
	if elsewhere(t) { // upstream's transactions leave goroutines
		return
	}
	url, admin := startBroker(t, "transactions", map[string]string{"transactionCoordinatorEnabled": "true"})
	each(t, map[string]pulsar.SubscriptionType{"Shared": pulsar.Shared, "Exclusive": pulsar.Exclusive},
		func(t *testing.T, kind pulsar.SubscriptionType) {
			b := &broker{t: t, url: url, admin: admin}
			b.connect(pulsar.ClientOptions{EnableTransaction: true})
			topic, ctx := b.topic(0), context.Background()
			c := b.subscribe(b.options(topic, kind), redelivery.WithNackRedeliveryDelay(ms(200)), redelivery.WithAckTimeout(time.Minute))
			b.send(topic, 4, false)
			for range 2 { // two are redelivered first, so that the Consumer remembers them
				c.Nack(receive(t, c))
			}
			for _, commit := range []bool{false, true} {
				txn, err := b.client.NewTransaction(time.Minute)
				require.NoError(t, err)
				for range 4 {
					require.NoError(t, c.AckWithTxn(receive(t, c), txn))
				}
				nothing(t, c, ms(500))
				if commit {
					require.NoError(t, txn.Commit(ctx))
				} else {
					require.NoError(t, txn.Abort(ctx))
				}
			}
			nothing(t, c, time.Second)
			b.settles(topic, 0)
			assert.Zero(t, c.Stats().Failed)
			assert.Zero(t, c.Stats().Waiting)
			const n = 5 // of a batch, which is acknowledged with its last message, whichever are by a transaction
			for _, in := range [][]int{{0}, {2}, {n - 1}, {1, 3}, {0, n - 1}, {0, 1, 2, 3, 4}} {
				txn, err := b.client.NewTransaction(time.Minute)
				require.NoError(t, err)
				b.send(topic, n, true)
				for i := range n {
					if msg := receive(t, c); slices.Contains(in, i) {
						require.NoError(t, c.AckWithTxn(msg, txn))
					} else {
						require.NoError(t, c.Ack(msg))
					}
				}
				require.NoError(t, txn.Commit(ctx))
				require.Eventually(t, func() bool { return b.stats(topic, 0).Backlog == 0 }, patience, ms(50), "%v", in) // the broker counts one of a whole batch
			}
		})
}
