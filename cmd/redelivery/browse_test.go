package main

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The user types numbers to get to a replay with a canary, and back.
func TestBrowseLeadsFromTheListToAReplay(t *testing.T) {
	b := newBroker(t)
	deploy := b.invoices(t)
	deploy()
	var out, errs bytes.Buffer
	answers := "nothing\n9\n2\n1\nc\n1\nno\nq\nq\n" // the second topic: invoices
	code := (&browse{bufio.NewScanner(strings.NewReader(answers)), &out, &errs}).run()
	require.Zero(t, code, errs.String())
	require.Empty(t, errs.String())
	said := out.String()
	require.Contains(t, said, "  2  orders-invoices-DLQ, 72 entries\n")
	require.Contains(t, said, "  1  60, 5m: *tax.Stale: old rates\n")
	require.Contains(t, said, "-canary 5 -yes\nReplayed 60 letters")
	require.Contains(t, said, "  1  12, 5m: *tax.Unknown: no rate for country <n>\n")
	require.Eventually(t, func() bool {
		return b.server.Subscription(origin+"-invoices-RETRY",
			"invoices").Backlog == 0
	}, 30*time.Second, 10*time.Millisecond)
	require.Equal(t, 1, strings.Count(said, " -yes\n"))

	code, _, stderr := dlqRun("", "purge", "orders-refunds-DLQ", "-no-export", "-yes")
	require.Zero(t, code, stderr)
	out.Reset()
	require.Zero(t, (&browse{bufio.NewScanner(strings.NewReader("3\nq\n")), &out, &errs}).run())
	require.Contains(t, out.String(), "Topic, 1 to 4, or q to go back: \nNo group.\n",
		"an empty topic did not lead back to the topics")
	out.Reset()
	require.Zero(t, (&browse{bufio.NewScanner(strings.NewReader("")), &out, &errs}).run(), "ended input was an error")
	t.Setenv("PULSAR_ADMIN_URL", "http://127.0.0.1:1")
	require.Equal(t, 1, (&browse{bufio.NewScanner(strings.NewReader("")), &out, &errs}).run())
}
