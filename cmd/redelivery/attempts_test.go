package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// The tool shows who waits and why, writes nothing for that, and forgets a message.
func TestAttempts(t *testing.T) {
	server := pulsartest.NewServer(t)
	client := server.Client(t)
	t.Setenv("PULSAR_URL", server.URL())
	t.Setenv("PULSAR_ADMIN_URL", server.AdminURL())
	const topic = "persistent://public/default/orders-billing-ATTEMPTS"
	log, err := attempts.Open(client, attempts.Options{Topic: topic, Name: "billing-1"})
	require.NoError(t, err)
	defer log.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, log.Ready(ctx))
	key := attempts.Key{Topic: "persistent://public/default/orders-partition-0", Ledger: 12, Entry: 3}
	log.Failed(key, 2, time.Hour, "no coffee")
	require.Eventually(t, func() bool { return log.Stats().Lag == 0 }, 10*time.Second, time.Millisecond)
	tool := func(args ...string) (string, string, int) {
		var out, errs bytes.Buffer
		code := run(append([]string{"attempts"}, args...), &out, &errs)
		return out.String(), errs.String(), code
	}
	out, _, code := tool("orders", "-subscription", "billing")
	require.Zero(t, code)
	require.Regexp(t, `(?s)1 messages in .*-ATTEMPTS.*12:3:0 +public/default/orders-partition-0 +2 +0 .* ago +in .* no coffee.*billing-1 +live`, out)
	out, _, code = tool("-json", "-subscription", "billing", "orders")
	require.Zero(t, code)
	var shown attemptsShown
	require.NoError(t, json.Unmarshal([]byte(out), &shown))
	require.EqualValues(t, 2, shown.Messages[0].Count)
	_, errs, code := tool("-subscription", "billing", "-forget", "7:7", "orders")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "has no message 7:7")
	out, _, code = tool("-subscription", "billing", "-forget", "12:3", "orders")
	require.Zero(t, code, out)
	_, errs, code = tool("-subscription", "shipping", "orders")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "there is no log persistent://public/default/orders-shipping-ATTEMPTS")
	require.NotContains(t, server.Topics(), "persistent://public/default/orders-shipping-ATTEMPTS")
	_, ok := log.Find(key)
	require.Eventually(t, func() bool { _, ok = log.Find(key); return !ok }, 10*time.Second, time.Millisecond)
	for _, wrong := range [][]string{{"orders"}, {"-subscription", "b"}, {"-subscription", "b", "-forget", "x", "orders"}, {"-n", "-1", "-subscription", "b", "t"},
		{"-subscription", "b", "-forget", "12:3:0x", "orders"}, {"-timeout", "30", "-subscription", "b", "t"}} {
		_, errs, code = tool(wrong...)
		require.Equal(t, 2, code, errs)
	}
}

func TestAttemptsWantsOneTopic(t *testing.T) {
	for want, args := range map[string][]string{
		"no topic is given (-h shows flags)": {"attempts", "-subscription", "billing"},
		"there are 2 topics, want one":       {"attempts", "-subscription", "billing", "orders", "invoices"},
		"want 30s, 30m or 30h":               {"attempts", "-subscription", "billing", "-timeout", "30", "orders"},
		"want a whole number, 0 or more":     {"attempts", "-subscription", "billing", "-n", "many", "orders"},

		`topic is "http://x", want topic, tenant/namespace/topic or persistent://tenant/namespace/topic`:         {"attempts", "-subscription", "billing", "http://x"},
		`-log is "persistent://a//c", want topic, tenant/namespace/topic or persistent://tenant/namespace/topic`: {"attempts", "-log", "persistent://a//c", "orders"},
		`-log is "non-persistent://a/b/c", want a persistent topic`:                                              {"attempts", "-log", "non-persistent://a/b/c", "orders"},
	} {
		var stderr bytes.Buffer
		require.Equal(t, 2, run(args, io.Discard, &stderr))
		require.Contains(t, stderr.String(), want)
	}
}
