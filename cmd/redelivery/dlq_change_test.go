package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

func TestImportPublishesPurgedLettersAndUnsubscribeRemovesASubscription(t *testing.T) {
	b := newBroker(t)
	const topic = "orders-refunds-DLQ"
	path := filepath.Join(t.TempDir(), "letters")
	must := func(args ...string) string {
		code, stdout, stderr := dlqRun("", args...)
		require.Zero(t, code, "%q: %s", args, stderr)
		return stdout
	}
	said := must("purge", topic, "-o", path, "-subscription", "redelivery")
	require.Contains(t, said, "Subscription audit also keeps 25 entries, unread: -subscription audit purges "+
		"these.\n")
	said = must("purge", topic, "-o", path, "-subscription", "redelivery", "-yes")
	require.Contains(t, said, "Subscription audit also keeps 25 entries, unread: purge -subscription audit empties "+
		"it.\n")
	require.NotContains(t, must("purge", topic, "-no-export", "-subscription", "audit", "-yes"), "keeps")
	require.Contains(t, must("import", topic, "-i", path),
		"Would import 25 letters.\n  25 to orders-refunds-DLQ, for audit, redelivery\nNothing was changed")
	require.Contains(t, must("import", topic, "-i", path, "-yes"), "Imported 25 letters.\n")
	require.Contains(t, must("groups", topic), "*pay.Declined: no card")
	require.Contains(t, must("import", topic, "-i", path, "-skip", "20", "-yes"), "Imported 5 letters.\n")

	said = must("unsubscribe", topic)
	const again = "A later replay or purge begins again with all stored letters, also those already replayed.\n"
	require.Equal(t, "Would remove subscription redelivery, which keeps 30 entries; audit may keep them too.\n"+again+
		"Nothing was changed. Run again with -yes.\n", said)
	require.Equal(t, "Removed subscription redelivery, which keeps 30 entries; audit may keep them too.\n"+again,
		must("unsubscribe", topic, "-yes"))
	require.Equal(t, []string{"audit"}, b.server.Subscriptions(origin+"-refunds-DLQ"))
	require.Contains(t, must("unsubscribe", topic, "-subscription", "audit"),
		"it is the topic's last one: the broker deletes these entries")

	require.Contains(t, must("unsubscribe", topic, "-subscription", "audit"),
		"A later replay or purge with -subscription audit begins again")
	b.subscribe("orders-none-DLQ", "redelivery")
	require.NotContains(t, must("unsubscribe", "orders-none-DLQ"), "begins again")

	consumer, err := b.client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "audit",
		Type: pulsar.Shared})
	require.NoError(t, err)
	defer consumer.Close()
	for want, args := range map[string][]string{
		"not subscribed: persistent://public/default/orders-refunds-DLQ has no subscription redelivery": {"unsubscribe",
			topic, "-yes"},
		"subscription audit of orders-refunds-DLQ has 1 consumer": {"unsubscribe",
			topic, "-subscription", "audit"},
		"no such file":            {"import", topic, "-i", path + "x"},
		"line 1 is not a letter":  {"import", topic, "-i", os.Args[0], "-yes"},
		"not a dead letter topic": {"unsubscribe", "orders", "-subscription", "billing", "-yes"},
	} {
		code, _, stderr := dlqRun("", args...)
		require.Equal(t, 1, code, "%q", args)
		require.Contains(t, stderr, want)
		code, _, stderr = dlqRun("", slices.DeleteFunc(args, func(arg string) bool { return arg == "-yes" })...)
		require.Equal(t, 1, code, "the plan of %q", args)
		require.Contains(t, stderr, want)
	}
	_, _, stderr := dlqRun("", "import", topic, "-i", os.Args[0], "-yes")
	require.Equal(t, "redelivery dlq: line 1 is not a letter; the first 0 lines are done; -skip 0 continues after these\n", stderr)
	_, _, stderr = dlqRun("", "import", topic, "-i", os.Args[0])
	require.Equal(t, "redelivery dlq: line 1 is not a letter\n", stderr,
		"a plan, which publishes nothing, named lines to skip")
	code, _, stderr := dlqRun("", "import", topic)
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "-i is missing, want a file")
}
