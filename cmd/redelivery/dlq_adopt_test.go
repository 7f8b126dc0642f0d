package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

// mail creates subscriptions of a dead letter topic, and publishes nine letters to the topic, in batches of three.
func (b *broker) mail(subscriptions ...string) (dlq string) {
	dlq = origin + "-mail-DLQ"
	b.subscribe(origin+"-mail-RETRY", "mail")
	b.subscribe(dlq, subscriptions...)
	p, err := b.client.CreateProducer(pulsar.ProducerOptions{Topic: dlq, BatchingMaxMessages: 3})
	require.NoError(b.t, err)
	defer p.Close()
	for i := range 9 {
		p.SendAsync(b.t.Context(), &pulsar.ProducerMessage{Payload: fmt.Append(nil, i), Properties: map[string]string{
			"REAL_TOPIC": origin, "REAL_SUBSCRIPTION": "mail"}},
			func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
	}
	require.NoError(b.t, p.FlushWithCtx(b.t.Context()))
	return dlq
}

// A subscription is idle if it has no consumer. The replay creates no other subscription, and leaves no backlog.
func TestDlqReplaysTheOnlyIdleSubscription(t *testing.T) {
	b := newBroker(t)
	dlq := b.mail("inspect", "service")
	service, err := b.client.Subscribe(pulsar.ConsumerOptions{Topic: dlq, SubscriptionName: "service",
		Type: pulsar.Shared})
	require.NoError(t, err)
	defer service.Close()
	const on = "Chose subscription inspect, which has no consumer.\n"
	_, stdout, _ := dlqRun("", "peek", "orders-mail-DLQ")
	require.Contains(t, stdout, "Letters that subscription inspect has not acknowledged.\n")
	code, stdout, stderr := dlqRun("", "replay", "orders-mail-DLQ")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "Would replay 9 letters.\n  9 to orders-mail-RETRY, for mail (no "+
		"consumer)\n"+on+"Nothing was changed.")
	code, stdout, stderr = dlqRun("", "replay", "orders-mail-DLQ", "-yes")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, on)
	require.Equal(t, []string{"inspect", "service"}, b.server.Subscriptions(dlq))
	require.Zero(t, b.server.Subscription(dlq, "inspect").Backlog)
}

// The broker creates a subscription when it compacts a topic. No consumer reads it.
func TestDlqLeavesTheSubscriptionOfCompactionAlone(t *testing.T) {
	b := newBroker(t)
	dlq := b.mail("__compaction")
	code, stdout, stderr := dlqRun("", "list")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "NONE: messages are lost")
	require.NotContains(t, stdout, "__compaction")
	code, stdout, stderr = dlqRun("", "purge", "orders-mail-DLQ", "-no-export", "-yes")
	require.Zero(t, code, stderr)
	require.Equal(t, "Purged 9 letters.\n", stdout)
	require.Equal(t, []string{"__compaction", "redelivery"}, b.server.Subscriptions(dlq))
	require.Equal(t, 3, b.server.Subscription(dlq, "__compaction").Backlog)
	b.subscribe(dlq, "inspect")
	code, stdout, stderr = dlqRun("", "replay", "orders-mail-DLQ", "-to", "origin")
	require.NotContains(t, stdout+stderr, "__compaction", code)
}

// If the tool has its own subscription, it uses that one, and shows how much the other subscription keeps. Of two idle
// subscriptions it adopts only one with an unfinished replay.
func TestDlqKeepsToTheSubscriptionOfEarlierCommands(t *testing.T) {
	for name, subscriptions := range map[string][]string{"its own": {"inspect", "redelivery"},
		"two": {"inspect", "audit"}} {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t)
			dlq := b.mail(subscriptions...)
			code, stdout, stderr := dlqRun("", "replay", "orders-mail-DLQ", "-yes")
			require.Zero(t, code, stderr)
			require.NotContains(t, stdout, "On subscription")
			require.Zero(t, b.server.Subscription(dlq, "redelivery").Backlog)
			_, stdout, _ = dlqRun("", "groups", "orders-mail-DLQ")
			require.Contains(t, stdout, "Letters that subscription redelivery has not acknowledged.\nSubscription ")
			require.Contains(t, stdout, "Subscription inspect keeps 3 entries; -subscription inspect shows these.\n")
		})
	}
	b := newBroker(t)
	dlq := b.mail("inspect", "audit")
	// leaves two letters of a batch
	code, _, stderr := dlqRun("", "replay", "orders-mail-DLQ", "-yes", "-max", "1", "-subscription", "inspect")
	require.Zero(t, code, stderr)
	code, _, stderr = dlqRun("", "replay", "orders-mail-DLQ", "-yes")
	require.Zero(t, code, stderr)
	require.Equal(t, 9, b.server.Subscription(origin+"-mail-RETRY", "mail").Backlog)
	require.Equal(t, []string{"audit", "inspect"}, b.server.Subscriptions(dlq))
}

// The forms are: as peek prints it, with -1 as the partition, and without the index in the batch, which means the whole
// batch.
func TestDlqAcceptsEveryFormOfAnID(t *testing.T) {
	b := newBroker(t)
	b.mail("inspect")
	_, stdout, _ := dlqRun("", "peek", "orders-mail-DLQ", "-json")
	var first struct{ ID string }
	require.NoError(t, json.NewDecoder(strings.NewReader(stdout)).Decode(&first))
	parts := strings.Split(first.ID, ":")
	entry := parts[0] + ":" + parts[1]
	for id, want := range map[string]int{first.ID: 1, entry + ":-1:0": 1, entry + ":0": 3, entry + ":-1": 3, entry: 3} {
		code, stdout, stderr := dlqRun("", "replay", "orders-mail-DLQ", "-id", id)
		require.Zero(t, code, stderr)
		require.Contains(t, stdout, "Would replay "+strings.TrimPrefix(letters("", want), " "), id)
	}
	code, _, _ := dlqRun("", "replay", "orders-mail-DLQ", "-id", parts[0])
	require.Equal(t, 1, code, "a ledger alone was accepted as an ID")
}
