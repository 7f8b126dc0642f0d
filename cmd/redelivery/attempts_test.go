package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// Without -forget, the command must not write to the log.
func TestAttemptsShowsAndForgetsMessagesOfTheLog(t *testing.T) {
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
	require.Regexp(t, `(?s)1 messages in .*-ATTEMPTS.*12:3:0 +public/default/orders-partition-0 +2 +0 .* ago +in .* no coffee.*billing-1 +open`, out)
	log.KeepAlive()
	require.Eventually(t, func() bool {
		out, _, _ = tool("orders", "-subscription", "billing")
		return regexp.MustCompile(`billing-1 +live`).MatchString(out)
	}, 10*time.Second, 10*time.Millisecond)
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
	_, errs, _ = tool("-subscription", "shipping", "-log", "short", "shop/eu/orders")
	require.Contains(t, errs, "there is no log persistent://shop/eu/short,")
	_, ok := log.Find(key)
	require.Eventually(t, func() bool { _, ok = log.Find(key); return !ok }, 10*time.Second, time.Millisecond)
	for _, wrong := range [][]string{{"orders"}, {"-subscription", "b"},
		{"-subscription", "b", "-forget", "x", "orders"}, {"-n", "-1", "-subscription", "b", "t"},
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

// Suspects are messages that crashed a consumer. After them come those that failed most often. Messages that a handler
// had, but that never failed, are shown only with -all. -forget accepts an ID as it is shown, and -forget-all forgets
// all messages at once.
func TestAttemptsShowsSuspectsFirst(t *testing.T) {
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
	key := func(entry int64, index int32) attempts.Key {
		return attempts.Key{Topic: "persistent://public/default/orders-partition-2", Ledger: 12, Entry: entry,
			Index: index}
	}
	for i := range int32(201) {
		log.Begun(key(1, i))
	}
	log.Failed(key(2, 0), 1, time.Second, "once")
	log.Failed(key(3, 0), 7, time.Hour, "often")
	log.Failed(key(4, 0), 0, time.Hour, "snoozed")
	require.NoError(t, log.Flush(ctx))
	tool := func(args ...string) string {
		var out, errs bytes.Buffer
		code := run(append([]string{"attempts", "-subscription", "billing", "orders"}, args...), &out, &errs)
		require.Zero(t, code, errs.String())
		return out.String()
	}
	require.Regexp(t, `(?s)^3 messages in .*\nand 201 that a handler had, but that never failed: -all shows these\n.*12:3:2 .* often.*12:2:2 .* once.*12:4:2 .* snoozed`, tool())
	require.NotContains(t, tool(), "12:1:2")
	require.Regexp(t, `(?s)^204 messages in .*12:3:2 .*12:1:2:200 .*`, tool("-all", "-n", "0"))
	require.Equal(t, "Forgot 1 of the log's messages.\n", tool("-forget", "12:1:2:200"))
	require.Equal(t, "Forgot 200 of the log's messages.\n", tool("-forget", "12:1:2"))
	require.Equal(t, "Forgot all of the log's messages: 3.\n", tool("-forget-all"))
	require.Regexp(t, "^0 messages in ", tool())
	require.Eventually(t, func() bool { return log.Stats().Records == 0 }, 10*time.Second, time.Millisecond)
}
