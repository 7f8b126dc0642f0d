package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	console = regexp.MustCompile("(?s)```console\n(.*?)```")
	runID   = regexp.MustCompile(`run [0-9a-f]{12}`)
)

// The test runs the commands in the console blocks of docs/deadletter.md, in order.
func TestConsoleBlocksOfTheGuideShowTheOutput(t *testing.T) {
	b := newBroker(t)
	dir := t.TempDir()
	path, err := filepath.Abs("../../docs/deadletter.md")
	require.NoError(t, err)
	t.Chdir(dir)
	b.failOn(t, 4)
	deploy := b.invoices(t)
	deployed := false
	doc, err := os.ReadFile(path)
	require.NoError(t, err)
	_, stdout, _ := dlqRun("", "groups", "orders-billing-DLQ", "-json")
	var groups, invoices []struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(stdout), &groups))
	_, stdout, _ = dlqRun("", "groups", "orders-invoices-DLQ", "-json")
	require.NoError(t, json.Unmarshal([]byte(stdout), &invoices))
	got := console.ReplaceAllStringFunc(string(doc), func(block string) string {
		var made strings.Builder
		for line := range strings.Lines(console.FindStringSubmatch(block)[1]) {
			if strings.HasPrefix(line, "# ") {
				made.WriteString(line)
				if strings.Contains(line, "deployed") {
					deploy()
					deployed = true
				}
			}
			command, ok := strings.CutPrefix(line, "$ redelivery dlq ")
			if !ok {
				continue
			}
			command = strings.ReplaceAll(strings.TrimSpace(command), "GROUP", groups[0].ID)
			command = strings.ReplaceAll(command, "FIRST", invoices[0].ID)
			code, stdout, stderr := dlqRun("", strings.Fields(command)...)
			assert.Equal(t, strings.Contains(command, "-canary") && !deployed, code != 0, "%s: %s", command, stderr)
			fmt.Fprintf(&made, "$ redelivery dlq %s\n%s%s", command, stdout, stderr)
		}
		return "```console\n" + runID.ReplaceAllString(made.String(), "run 3f9a1c07d2be") + "```"
	})
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	assert.Equal(t, string(doc), got)
	for _, block := range console.FindAllString(got, -1) {
		for line := range strings.Lines(block) {
			assert.LessOrEqual(t, utf8.RuneCountInString(line), 100, "%q", line)
		}
	}
	assert.Equal(t, 80, b.server.Subscription(origin+"-billing-RETRY", "billing").Backlog)
}

// invoices publishes dead letters of two causes, and starts a consumer of their retry topic. Before deploy is called,
// the consumer makes a dead letter of each replayed message.
func (b *broker) invoices(t *testing.T) (deploy func()) {
	const dlq, retry = origin + "-invoices-DLQ", origin + "-invoices-RETRY"
	b.subscribe(dlq, "audit")
	letter := func(kind, reason, key string, at time.Duration) *pulsar.ProducerMessage {
		return &pulsar.ProducerMessage{Payload: fmt.Appendf(nil, `{"customer":%q}`, key), Key: key,
			Properties: map[string]string{"REAL_TOPIC": origin,
				"REAL_SUBSCRIPTION": "invoices", "EXCEPTION_TYPE": kind, "EXCEPTION_MESSAGE": reason,
				"DEAD_LETTER_TIME": fmt.Sprint(time.Now().Add(-at - 30*time.Second).UnixMilli())}}
	}
	for i := range 72 {
		key, at := fmt.Sprintf("customer-%d", i%24), time.Duration(40-i/2)*time.Minute
		if i%6 == 5 {
			b.publish(dlq, letter("*tax.Unknown", fmt.Sprintf("no rate for country %d", i), key, at))
		} else {
			b.publish(dlq, letter("*tax.Stale", "old rates", key, at))
		}
	}
	c, err := b.client.Subscribe(pulsar.ConsumerOptions{Topic: retry, SubscriptionName: "invoices",
		Type: pulsar.Shared})
	require.NoError(t, err)
	var fixed atomic.Bool
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			msg, err := c.Receive(ctx)
			if err != nil {
				return
			}
			if !fixed.Load() {
				again := letter("*tax.Stale", "old rates", msg.Key(), 0)
				again.Properties["REPLAY_RUN"], again.Properties["REPLAY_COUNT"] = msg.Properties()["REPLAY_RUN"], "1"
				again.Properties["ORIGIN_MESSAGE_ID"] = msg.ID().String()
				b.publish(dlq, again)
			}
			_ = c.Ack(msg)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		c.Close()
	})
	return func() { // a replay stops when a letter of its canary dies again, so the retry topic may still have the other letters
		require.Eventually(t, func() bool { return b.server.Subscription(retry, "invoices").Backlog == 0 }, time.Minute,
			time.Millisecond)
		fixed.Store(true)
	}
}

// failOn makes a consumer of the refunds give up on the nth message.
func (b *broker) failOn(t *testing.T, n int) {
	c, err := b.client.Subscribe(pulsar.ConsumerOptions{Topic: origin + "-refunds-RETRY", SubscriptionName: "refunds",
		Type: pulsar.Shared})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 1; ; i++ {
			msg, err := c.Receive(ctx)
			if err != nil {
				return
			}
			if i == n {
				again := &pulsar.ProducerMessage{Payload: msg.Payload(), Properties: maps.Clone(msg.Properties())}
				again.Properties["EXCEPTION_TYPE"], again.Properties["EXCEPTION_MESSAGE"] = "*pay.Declined", "no card"
				b.publish(origin+"-refunds-DLQ", again)
			}
			_ = c.Ack(msg)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		c.Close()
	})
}
