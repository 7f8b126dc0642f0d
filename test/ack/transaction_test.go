package ack

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// transaction is an argument that the fake ignores.
type transaction struct{ pulsar.Transaction }

// After an abort the broker sends the message again. The Consumer is not told of the abort, so it must deliver each
// copy that comes after AckWithTxn.
func TestMessagesOfAbortedTransactionAreRedelivered(t *testing.T) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		inner.Deliver(1)
		require.NoError(t, c.NackWithDelay(testkit.Receive(t, c), time.Millisecond))
		require.Eventually(t, func() bool { return len(inner.Requests()) == 1 }, 10*time.Second, time.Millisecond)
		inner.Deliver(1)
		require.NoError(t, c.AckWithTxn(testkit.Receive(t, c), transaction{}))
		inner.Deliver(1)
		msg := testkit.Receive(t, c)
		require.NoError(t, c.Ack(msg))
		assert.Zero(t, c.Stats().Waiting)
		assert.Zero(t, c.Stats().Swallowed)
	}, testkit.FromBroker)
}

// With batch-index acknowledgement the broker would refuse the acknowledgement of a batch's last message, and the
// transaction could not end.
func TestAckWithTxnOfABatchIsRefusedWithDefaultIndexAcks(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	c := b.Subscribe(b.Options(topic, pulsar.Shared))
	b.Send(topic, 2, true)
	msg := testkit.Receive(t, c)
	require.ErrorContains(t, c.AckWithTxn(msg, transaction{}), "is of a batch of 2, want WithoutBatchIndexAcks")
	require.NoError(t, c.Ack(msg))
	require.NoError(t, c.Ack(testkit.Receive(t, c)))
	b.Settles(topic, 0)
}

// Upstream panics at a transaction of a foreign type. The Consumer must return an error.
func TestForeignTransactionIsRefused(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	c := b.Subscribe(b.Options(topic, pulsar.Shared))
	b.Send(topic, 1, false)
	msg := testkit.Receive(t, c)
	require.ErrorContains(t, c.AckWithTxn(msg, transaction{}), "ack.transaction")
	require.NoError(t, c.Ack(msg))
	b.Settles(topic, 0)
}

// Transactions need a real broker of their own: where they are enabled, every topic waits for unfinished transactions.
func TestTransactionsCommitAndAbort(t *testing.T) {
	t.Parallel()
	if !testkit.HasRealBroker() {
		t.Skip("PULSAR_URL or PULSAR_ADMIN_URL is not set")
	}
	if testkit.InOwnProcess(t) { // upstream's transactions leave goroutines
		return
	}
	url, admin := testkit.StartPulsar(t, "transactions", map[string]string{"transactionCoordinatorEnabled": "true"})
	testkit.Each(t, map[string]pulsar.SubscriptionType{"Shared": pulsar.Shared, "Exclusive": pulsar.Exclusive},
		func(t *testing.T, kind pulsar.SubscriptionType) {
			b := &testkit.Broker{T: t, URL: url, AdminURL: admin}
			b.Connect(pulsar.ClientOptions{EnableTransaction: true})
			topic, ctx := b.NewTopic(0), context.Background()
			plain, err := pulsar.NewClient(pulsar.ClientOptions{URL: url, Logger: logtest.Client(t)})
			require.NoError(t, err)
			defer plain.Close()
			c := b.Subscribe(b.Options(topic, kind), redelivery.WithNackRedeliveryDelay(200*time.Millisecond),
				redelivery.WithAckTimeout(time.Minute), redelivery.WithClient(plain))
			require.False(t, c.Options().BatchIndexAcknowledgment)
			b.Send(topic, 4, false)
			for range 2 { // two messages are redelivered first, so that the Consumer knows them
				c.Nack(testkit.Receive(t, c))
			}
			for _, commit := range []bool{false, true} {
				txn, err := b.Client.NewTransaction(time.Minute)
				require.NoError(t, err)
				for range 4 {
					require.NoError(t, c.AckWithTxn(testkit.Receive(t, c), txn))
				}
				testkit.ReceiveNothing(t, c, 500*time.Millisecond)
				if commit {
					require.NoError(t, txn.Commit(ctx))
				} else {
					require.NoError(t, txn.Abort(ctx))
				}
			}
			testkit.ReceiveNothing(t, c, time.Second)
			b.Settles(topic, 0)
			assert.Zero(t, c.Stats().Failed)
			assert.Zero(t, c.Stats().Waiting)
			const n = 5 // the batch's size; any of its messages may be in the transaction
			for _, in := range [][]int{{0}, {2}, {n - 1}, {1, 3}, {0, n - 1}, {0, 1, 2, 3, 4}} {
				txn, err := b.Client.NewTransaction(time.Minute)
				require.NoError(t, err)
				b.Send(topic, n, true)
				for i := range n {
					if msg := testkit.Receive(t, c); slices.Contains(in, i) {
						require.NoError(t, c.AckWithTxn(msg, txn))
					} else {
						require.NoError(t, c.Ack(msg))
					}
				}
				require.NoError(t, txn.Commit(ctx))
				// the batch is acknowledged with its last message
				require.Eventually(t, func() bool { return b.Stats(topic, 0).Backlog == 0 }, testkit.Patience,
					50*time.Millisecond, "%v", in)
			}
		})
}
