package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Errors use no names of Go, and the exit code is 2.
func TestErrorsNameArgumentsAsTyped(t *testing.T) {
	newBroker(t)
	for want, args := range map[string][]string{
		`topic is "non-persistent://a/b/c-DLQ", want a persistent topic`:                                          {"peek", "non-persistent://a/b/c-DLQ"},
		`topic is "orders-billing-DLQ-partition-3", want all partitions: orders-billing-DLQ`:                      {"groups", "orders-billing-DLQ-partition-3"},
		`topic is "a/b", want topic, tenant/namespace/topic or persistent://tenant/namespace/topic`:               {"groups", "a/b"},
		`topic is "persistent://a//c", want topic, tenant/namespace/topic or persistent://tenant/namespace/topic`: {"groups", "persistent://a//c"},
		`topic is "http://x", want topic, tenant/namespace/topic or persistent://tenant/namespace/topic`:          {"peek", "http://x"},
		`-topic is "http://x", want topic, tenant/namespace/topic or persistent://tenant/namespace/topic`:         {"replay", "orders-billing-DLQ", "-topic", "http://x"},
		`namespace is "/public", want tenant/namespace`:                                                           {"list", "/public"},
		`namespace is "public", want tenant/namespace`:                                                            {"list", "public"},
		`-topic is "orders-billing-DLQ", want another topic than the dead letters' own`:                           {"replay", "orders-billing-DLQ", "-topic", "orders-billing-DLQ"},
		`-topic is "orders-billing-DLQ-redelivery", want a topic that is not a replay's journal`:                  {"replay", "orders-billing-DLQ", "-topic", "orders-billing-DLQ-redelivery"},
		`-namespace is "shop", want tenant/namespace`:                                                             {"replay", "orders-billing-DLQ", "-namespace", "shop"},
		`"2562048h" for flag -after: want at most 2562047h, or a time such as 2006-01-02T15:04`:                   {"peek", "orders-billing-DLQ", "-after", "2562048h"},
		`-canary is 2, want at most -max, which is 1`:                                                             {"replay", "orders-billing-DLQ", "-max", "1", "-canary", "2"},
		`-topic is "non-persistent://public/default/orders", want a persistent topic (-h shows verbs and flags)` +
			"\n": {"replay", "orders-billing-DLQ", "-topic", "non-persistent://public/default/orders"},
	} {
		code, stdout, stderr := dlqRun("", args...)
		assert.Equal(t, 2, code, "%q: %s", args, stderr)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, want)
		assert.NotContains(t, stderr, "Options")
	}
	code, _, stderr := dlqRun("", "replay", "orders-billing-DLQ", "-max", "1", "-yes")
	require.Zero(t, code, stderr)
	require.NotContains(t, stderr, "Options")
}

// The error begins with the command's name.
func TestCommandWritesOneErrorIfTheDiskIsFull(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full")
	}
	defer full.Close()
	newBroker(t)
	for _, args := range [][]string{{"list"}, {"list", "-json"}, {"groups", "orders-billing-DLQ"},
		{"peek", "orders-billing-DLQ", "-json"},
		{"export", "orders-billing-DLQ"}, {"purge", "orders-billing-DLQ", "-o", "/dev/full", "-yes"},
		{"purge", "orders-refunds-DLQ", "-o", "/dev/full", "-yes"}} {
		var stderr bytes.Buffer
		require.Equal(t, 1, run(append([]string{"dlq"}, args...), full, &stderr), "%q", args)
		assert.Equal(t, "redelivery dlq: write /dev/full: no space left on device\n", stderr.String(), "%q", args)
	}
}

// The output does not say that letters were purged.
func TestPurgeWhoseFileCannotBeWrittenPurgesNothing(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full")
	}
	b := newBroker(t)
	for _, args := range [][]string{nil, {"-json"}} {
		code, stdout, stderr := dlqRun("",
			append([]string{"purge", "orders-billing-DLQ", "-o", "/dev/full", "-yes"}, args...)...)
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "no space left")
		require.NotContains(t, stdout, "Purged")
		require.NotContains(t, stdout, `"done": 1`)
		require.Equal(t, 120, b.server.Subscription(origin+"-billing-DLQ", "audit").Backlog)
	}
}

// The output escapes control characters.
func TestJSONOutputCannotControlATerminal(t *testing.T) {
	b := newBroker(t)
	const evil = "\u0085\u009b31m\u202e\u2066\u200f\u061c\x7f\U000e0041 ü 日本"
	b.publish(origin+"-evil-DLQ", &pulsar.ProducerMessage{Payload: []byte(`"` + evil + `"`), Key: evil,
		Properties: map[string]string{
			"REAL_TOPIC": origin, "EXCEPTION_MESSAGE": evil}})
	for _, args := range [][]string{{"peek", "-payload"}, {"groups"}, {"export"}, {"replay", "-to", "origin"}} {
		code, stdout, stderr := dlqRun("", append(args, "orders-evil-DLQ", "-json")...)
		require.Zero(t, code, stderr)
		for _, r := range stdout {
			require.True(t, r == '\n' || clean(string(r)) == string(r), "%q: %q", args, stdout)
		}
		if args[0] == "peek" {
			var l struct{ Key, Reason, Value string }
			require.NoError(t, json.Unmarshal([]byte(stdout), &l))
			require.Equal(t, []string{evil, evil, evil}, []string{l.Key, l.Reason, l.Value})
			require.Contains(t, stdout, "ü 日本")
		}
	}
	path := filepath.Join(t.TempDir(), "letters")
	code, _, stderr := dlqRun("", "export", "orders-evil-DLQ", "-o", path)
	require.Zero(t, code, stderr)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotContains(t, string(text), "\u202e")
}

// JSON must be UTF-8, and other bytes could control some terminals.
func TestPeekDoesNotDecodeJSONThatIsNotUTF8(t *testing.T) {
	b := newBroker(t)
	payloads := []string{"\"\x9b31m\"", "{\"a\": \"\xff\"}"}
	for _, payload := range payloads {
		b.publish(origin+"-evil-DLQ", &pulsar.ProducerMessage{Payload: []byte(payload),
			Properties: map[string]string{"REAL_TOPIC": origin}})
	}
	code, stdout, stderr := dlqRun("", "peek", "-payload", "-json", "orders-evil-DLQ")
	require.Zero(t, code, stderr)
	require.True(t, utf8.ValidString(stdout), "%q", stdout)
	var got []string
	for line := range strings.Lines(stdout) {
		var l struct {
			Payload []byte
			Value   any
		}
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		require.Nil(t, l.Value)
		got = append(got, string(l.Payload))
	}
	require.Equal(t, payloads, got)
	code, stdout, stderr = dlqRun("", "peek", "-payload", "orders-evil-DLQ")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "  229b33316d22\n")
}

// The journal names a replay.
func TestForgedNameInTheJournalCannotControlATerminal(t *testing.T) {
	b := newBroker(t)
	journal := origin + "-refunds-DLQ-audit"
	b.subscribe(journal, "audit")
	b.publish(journal, &pulsar.ProducerMessage{Payload: []byte(`{"run": {"id": "\u001b[31m", "options": {"to":"retry","topic":"` + origin + `-refunds-RETRY",` +
		`"filter":{},"maxReplays":3}, "ends": {}}}`)})
	code, stdout, stderr := dlqRun("", "replay", "orders-refunds-DLQ", "-yes")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "resumed")
	require.NotContains(t, stdout+stderr, "\x1b")
}

// A mistyped group must not look like one whose letters are all replayed or purged.
func TestChoiceThatNoLetterMatchesIsAnError(t *testing.T) {
	newBroker(t)
	for _, args := range [][]string{{"groups"}, {"peek"}, {"replay"}, {"replay", "-yes"}, {"export"},
		{"purge", "-no-export"}, {"purge", "-no-export", "-yes"}} {
		for _, choice := range [][]string{{"-group", "0123456789"}, {"-id", "9999:0:0"}, {"-key", "nobody"}} {
			all := append(append(append([]string{}, args...), "orders-billing-DLQ"), choice...)
			code, _, stderr := dlqRun("", all...)
			assert.Equal(t, 1, code, "%q", all)
			assert.Contains(t, stderr, "no letter has "+strings.Join(choice, " "), "%q", all)
		}
	}
}

func TestReplayTakesLettersByIDAndByKey(t *testing.T) {
	b := newBroker(t)
	_, stdout, _ := dlqRun("", "peek", "orders-billing-DLQ", "-n", "7", "-json")
	var last struct{ ID, Key string }
	for line := range strings.Lines(stdout) {
		require.NoError(t, json.Unmarshal([]byte(line), &last))
	}
	code, stdout, stderr := dlqRun("", "replay", "orders-billing-DLQ", "-id", last.ID, "-yes")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "Replayed 1 letter,")
	code, stdout, stderr = dlqRun("", "replay", "orders-billing-DLQ", "-key", last.Key, "-key", "customer-0", "-yes")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "Replayed 14 letters,")
	require.Equal(t, 15, b.server.Subscription(origin+"-billing-RETRY", "billing").Backlog)
}

func TestVersionNamesTheClientAndGo(t *testing.T) {
	for _, word := range []string{"version", "-version", "--version"} {
		code, stdout, stderr := command(word)
		require.Zero(t, code, stderr)
		require.Regexp(t, `^redelivery \S+, pulsar-client-go v0\.\d+\.\d+\S*, go1\.\S+`, stdout)
	}
}

// A replay with the named flag succeeds.
func TestErrorOfAReplayWithoutARetryTopicNamesAFlag(t *testing.T) {
	b := newBroker(t)
	b.subscribe(origin+"-mail-DLQ", "audit")
	b.publish(origin+"-mail-DLQ", &pulsar.ProducerMessage{Payload: []byte("x"),
		Properties: map[string]string{"REAL_TOPIC": origin}})
	for _, yes := range []string{"-yes=false", "-yes"} {
		code, _, stderr := dlqRun("", "replay", "orders-mail-DLQ", yes)
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "no such topic: persistent://public/default/orders-mail-RETRY")
		require.Contains(t, stderr, "; -to origin replays to the topic of origin\n")
	}
	code, stdout, stderr := dlqRun("", "replay", "orders-mail-DLQ", "-to", "origin", "-others", "-yes")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "Replayed 1 letter,")
}

func TestNoTableIsShownForATopicWithoutLetters(t *testing.T) {
	b := newBroker(t)
	b.publish(origin+"-calm-DLQ", &pulsar.ProducerMessage{Payload: []byte("{}"),
		Properties: map[string]string{"REAL_TOPIC": origin}})
	code, _, stderr := dlqRun("", "purge", "orders-calm-DLQ", "-no-export", "-yes")
	require.Zero(t, code, stderr)
	for _, verb := range []string{"groups", "peek"} {
		code, stdout, stderr := dlqRun("", verb, "orders-calm-DLQ")
		require.Zero(t, code, stderr)
		require.Equal(t, "Letters that subscription redelivery has not acknowledged.\n\nNo letters.\n", stdout)
	}
}
