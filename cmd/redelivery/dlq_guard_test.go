package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dlq refuses to replay and to purge such a topic, even in a dry run.
func TestDlqRefusesATopicThatIsNotForDeadLetters(t *testing.T) {
	b := newBroker(t)
	b.publish(origin, &pulsar.ProducerMessage{Payload: []byte("x")})
	const doubt = "\norders may be no dead letter topic: no message says where it came from or why it died.\n"
	_, shown, _ := dlqRun("", "groups", "orders")
	require.Contains(t, shown, doubt)
	_, shown, _ = dlqRun("", "groups", "orders-billing-DLQ")
	require.NotContains(t, shown, "may be no dead letter topic")
	before := b.server.Topics()
	for _, args := range [][]string{{"purge", "-no-export"}, {"replay", "-to", "origin"}} {
		for _, yes := range []bool{false, true} {
			args := append(args, "orders", fmt.Sprintf("-yes=%v", yes))
			code, stdout, stderr := dlqRun("", args...)
			require.Equal(t, 1, code, "%q", args)
			require.Empty(t, stdout)
			require.Contains(t, stderr, "not a dead letter topic: the name of persistent://public/default/orders "+
				"does not end in -DLQ")
			require.Contains(t, stderr, "; -any-topic overrides this\n")
		}
	}
	path := filepath.Join(t.TempDir(), "purged.jsonl")
	code, _, stderr := dlqRun("", "purge", "orders", "-o", path, "-yes")
	require.Equal(t, 1, code, stderr)
	require.NoFileExists(t, path)
	require.Equal(t, before, b.server.Topics())
	require.Equal(t, []string{"billing", "shipping"}, b.server.Subscriptions(origin))
	const creates = "Would create subscription redelivery, which then keeps all letters until they are acknowledged.\n"
	code, stdout, stderr := dlqRun("", "purge", "orders", "-no-export", "-any-topic")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, creates)
	code, _, stderr = dlqRun("", "purge", "orders", "-no-export", "-any-topic", "-yes")
	require.Zero(t, code, stderr)
	code, stdout, stderr = dlqRun("", "purge", "orders", "-no-export", "-any-topic")
	require.Zero(t, code, stderr)
	require.NotContains(t, stdout, creates)
}

// The error names the flag with which they would be replayed.
func TestReplayLeavesOutLettersOfAnotherNamespace(t *testing.T) {
	b := newBroker(t)
	require.NoError(t, b.server.CreateNamespace("public/shop"))
	const there = "persistent://public/shop/baskets"
	b.subscribe(there, "billing")
	b.subscribe(there+"-billing-RETRY", "billing")
	const dlq = "all-dead-DLQ" // there is no all-dead-RETRY
	for _, from := range []string{origin, there, there} {
		b.publish("persistent://public/default/"+dlq,
			&pulsar.ProducerMessage{Payload: []byte("x"), Properties: map[string]string{
				"REAL_TOPIC": from, "REAL_SUBSCRIPTION": "billing", "ORIGIN_MESSAGE_ID": "1:1:0"}})
	}
	const want = "redelivery dlq: letters were left out that came from other namespaces: 2 of public/shop; " +
		"-namespace public/shop replays them\n"
	for _, yes := range []string{"-yes=false", "-yes"} {
		code, stdout, stderr := dlqRun("", "replay", dlq, yes)
		require.Equal(t, 1, code)
		require.Equal(t, want, stderr)
		require.Contains(t, stdout, "2 left, came from another namespace: ")
	}
	require.Equal(t, 1, b.server.Subscription(origin+"-billing-RETRY", "billing").Backlog)
	code, _, stderr := dlqRun("", "replay", dlq, "-namespace", "public/shop", "-yes")
	require.Zero(t, code, stderr)
	require.Equal(t, 2, b.server.Subscription(there+"-billing-RETRY", "billing").Backlog)
}

// Two purges with the same -o begin at once. The one that writes nothing must not remove the letters of the other.
func TestPurgeThatWritesNothingLeavesTheFileOfAnother(t *testing.T) {
	b := newBroker(t)
	path := filepath.Join(t.TempDir(), "purged.jsonl")
	api, err := url.Parse(b.server.AdminURL())
	require.NoError(t, err)
	forward := httputil.NewSingleHostReverseProxy(api)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut { // the journal, which locks other purges out
			assert.NoError(t, os.WriteFile(path, []byte("a letter of the other purge\n"), 0o600))
		}
		forward.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	t.Setenv("PULSAR_ADMIN_URL", proxy.URL)
	code, _, stderr := dlqRun("", "purge", "orders-billing-DLQ", "-o", path, "-id", "9:9:9", "-yes")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "no letter has -id 9:9:9")
	require.FileExists(t, path)
}
