package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// broker is a broker in this process, with dead letters.
type broker struct {
	t      *testing.T
	server *pulsartest.Server
	client pulsar.Client
}

const origin = "persistent://public/default/orders"

func newBroker(t *testing.T) *broker {
	b := &broker{t: t, server: pulsartest.NewServer(t)}
	var err error
	b.client, err = pulsar.NewClient(pulsar.ClientOptions{URL: b.server.URL(), Logger: logtest.Client(t)})
	require.NoError(t, err)
	t.Cleanup(b.client.Close)
	stats := httptest.NewServer(http.HandlerFunc(b.statistics))
	t.Cleanup(stats.Close)
	t.Setenv("PULSAR_URL", b.server.URL())
	t.Setenv("PULSAR_ADMIN_URL", stats.URL)
	b.subscribe(origin, "billing", "shipping")
	b.subscribe(origin+"-billing-RETRY", "billing")
	b.subscribe(origin+"-billing-DLQ", "audit")
	causes := []struct{ kind, reason string }{
		{"*net.OpError", "dial tcp 10.0.3.%d:5432: connect: connection refused"},
		{"*net.OpError", "dial tcp 10.0.3.%d:5432: connect: connection refused"},
		{"*json.SyntaxError", "invalid character 'x' at offset %d"},
	}
	for i := range 120 {
		cause := causes[i%3]
		b.publish(origin+"-billing-DLQ", &pulsar.ProducerMessage{
			Payload: []byte(fmt.Sprintf(`{"order": %d, "total": "%d.90"}`, 1000+i, i)),
			Key:     fmt.Sprintf("customer-%d", i%17),
			Properties: map[string]string{"REAL_TOPIC": origin, "REAL_SUBSCRIPTION": "billing",
				"EXCEPTION_TYPE": cause.kind, "EXCEPTION_MESSAGE": fmt.Sprintf(cause.reason, i),
				"DEAD_LETTER_TIME": fmt.Sprint(time.Now().Add(-time.Duration(200-i)*time.Minute - 30*time.Second).UnixMilli())},
		})
	}
	b.publish(origin+"-shipping-DLQ", &pulsar.ProducerMessage{Payload: []byte("x")})
	b.subscribe(origin+"-refunds-DLQ", "audit")
	b.subscribe(origin+"-refunds-RETRY", "refunds")
	for i := range 25 {
		b.publish(origin+"-refunds-DLQ",
			&pulsar.ProducerMessage{Payload: []byte("{}"),
				Properties: map[string]string{"REAL_TOPIC": origin, "REAL_SUBSCRIPTION": "refunds",
					"ORIGIN_MESSAGE_ID": fmt.Sprintf("1:%d:-1", i), "EXCEPTION_TYPE": "*pay.Declined",
					"EXCEPTION_MESSAGE": "no card"}})
	}
	return b
}

// statistics serves the statistics of the broker in process, and adds figures that it does not measure.
func (b *broker) statistics(w http.ResponseWriter, r *http.Request) {
	resp, err := http.Get(b.server.AdminURL() + r.URL.String())
	if !assert.NoError(b.t, err) {
		return
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if strings.HasSuffix(r.URL.Path, "/stats") && resp.StatusCode == http.StatusOK {
		first := time.Now().Add(-3*time.Hour - 20*time.Minute).UnixMilli()
		text = bytes.ReplaceAll(text, []byte(`"msgBacklog":`),
			fmt.Appendf(nil, `"earliestMsgPublishTimeInBacklog":%d,"msgBacklog":`, first))
		text = bytes.Replace(text, []byte(`{`), []byte(`{"msgRateIn":0.2,`), 1)
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(text)
}

func (b *broker) subscribe(topic string, names ...string) {
	for _, name := range names {
		c, err := b.client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: name, Type: pulsar.Shared})
		require.NoError(b.t, err)
		c.Close()
	}
}

func (b *broker) publish(topic string, m *pulsar.ProducerMessage) {
	b.server.Publish(b.t, topic, m)
}

// dlqRun runs a command line of redelivery dlq. answer is what the user types.
func dlqRun(answer string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = dlqCommand(args, strings.NewReader(answer), &out, &errs)
	return code, out.String(), errs.String()
}

func TestDlqRefusesWrongCommandLines(t *testing.T) {
	for want, args := range map[string][]string{
		"no verb is given, want":      {},
		`verb is "look", want`:        {"look"},
		`verb is "show"`:              {"show"},
		"no topic is given, want one": {"peek"},
		"-encryption-key-name is given, want -encryption-private-key too": {"peek", "-encryption-key-name", "k", "a"},
		"want only one topic":                                {"peek", "a", "b"},
		"flag provided but not":                              {"peek", "-what", "a"},
		`"-1" for flag -n: want a whole number, 0 or more`:   {"peek", "-n", "-1", "a"},
		`"-1" for flag -max: want a whole number, 1 or more`: {"replay", "-max", "-1", "a"},
		// in ReplayOptions, 0 means no limit
		`"0" for flag -max: want a whole number, 1 or more`: {"replay", "-max", "0", "a"},
		// in ReplayOptions, 0 means 3
		`"0" for flag -max-replays: want a whole number, 1 or more`: {"replay", "-max-replays", "0",
			"a"},
		`"-2" for flag -canary: want a whole number, 0 or more`: {"replay", "-canary", "-2", "a"},
		`"x" for flag -max-replays: want a whole number, 1 or more`: {"replay", "-max-replays", "x",
			"a"},
		"-canary is 2, want at most -max, which is 1": {"replay", "-canary", "2",
			"-max", "1", "a"},
		"-rate is NaN, want 0 or more":         {"replay", "-rate", "NaN", "a"},
		"-rate is -0.5, want 0 or more":        {"replay", "-rate", "-0.5", "a"},
		`"many" for flag -rate: want a number`: {"replay", "-rate", "many", "a"},
		`-url is "localhost:6650", want pulsar://host:6650 or pulsar+ssl://host:6651`: {"peek", "-url",
			"localhost:6650", "a"},
		`-url is "pulsar://", want pulsar://host:6650`: {"peek", "-url", "pulsar://",
			"a"},
		`-admin-url is "localhost:8080", want http://host:8080 or https://host:8443`: {"peek", "-admin-url",
			"localhost:8080", "a"},
		"want name=value": {"peek", "-property", "a", "b"},
		`tenant is "1" and "2", want one value`: {"purge", "-property",
			"tenant=1", "-property", "tenant=2", "-no-export", "a"},
		"want a duration": {"peek", "-after", "soon", "b"},
		"flag -before: want a duration": {"purge", "-before",
			"0001-01-01T00:00:00Z", "-no-export", "a"},
		"flag -after: want a duration": {"peek", "-after",
			"0001-01-01T00:00:00Z", "a"},
		"-after is 2026-01-03T00:00:00Z, want a time before that of -before, which is 2026-01-02T00:00:00Z": {"purge",
			"-after", "2026-01-03T00:00:00Z", "-before", "2026-01-02T00:00:00Z", "-no-export", "a"},
		"want a time before that of -before":                       {"replay", "-after", "2h", "-before", "3h", "a"},
		`want "retry" or "origin"`:                                 {"replay", "-to", "there", "a"},
		"-to and -topic are both given":                            {"replay", "-to", "origin", "-topic", "x", "a"},
		"and -topic are both given, want one":                      {"replay", "-to", "retry", "-topic", "x", "a"},
		`value "-2h" for flag -before: want 0 or more, such as 2h`: {"purge", "-before", "-2h", "-no-export", "a"},
		`value "-2h" for flag -after: want 0 or more, such as 2h`:  {"peek", "-after", "-2h", "a"},
		`value "maybe" for -payload: want true or false`:           {"peek", "-payload=maybe", "a"},
		"-o and -no-export are both given":                         {"purge", "-o", "x", "-no-export", "a"},
		"-o is missing, want a file":                               {"purge", "a"},
		"-max is a flag of replay, not of purge":                   {"purge", "-no-export", "-max", "5", "a"},
		"-yes is a flag of replay and purge":                       {"peek", "-yes", "a"},
		"-group is a flag of groups and peek":                      {"list", "-group", "x", "public/default"},
		"want -encryption-public-key":                              {"replay", "-encryption-private-key", "x", "a"},
		"want -encryption-private-key and":                         {"peek", "-encryption-public-key", "x", "a"},
	} {
		code, stdout, stderr := dlqRun("", args...)
		assert.Equal(t, 2, code, "%q", args)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, want)
	}
	code, stdout, _ := dlqRun("", "-h")
	assert.Zero(t, code)
	for line := range strings.Lines(stdout) {
		assert.LessOrEqual(t, utf8.RuneCountInString(line), width+1, "%q", line)
	}
}

func TestErrorsOfDlqSayWhatIsMissing(t *testing.T) {
	b := newBroker(t)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key) // as openssl genrsa writes it
	require.NoError(t, err)
	pkcs8 := filepath.Join(t.TempDir(), "pkcs8.pem")
	require.NoError(t, os.WriteFile(pkcs8, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	for want, args := range map[string][]string{
		"no such topic: persistent://public/default/nothing": {"peek", "nothing"},
		"has no subscription": {"replay", "-topic", "orders-shipping-DLQ",
			"orders-billing-DLQ", "-yes"},
		"no such file": {"purge", "-o", "no/such/folder", "-yes",
			"orders-billing-DLQ"},
		"open nokey: no such file": {"peek", "-encryption-private-key", "nokey",
			"orders-billing-DLQ"},
		"dlq_test.go has no key that can be used, want an RSA private key in PKCS #1": {"peek",
			"-encryption-private-key", "dlq_test.go", "orders-billing-DLQ"},
		"pkcs8.pem has no key that can be used, want an RSA private key in PKCS #1": {"peek",
			"-encryption-private-key", pkcs8, "orders-billing-DLQ"},
		"pkcs8.pem has no key that can be used, want an RSA public key": {"replay", "-encryption-public-key", pkcs8,
			"-encryption-private-key", pkcs8, "-encryption-key-name", "k", "orders-billing-DLQ"},
	} {
		code, _, stderr := dlqRun("", args...)
		assert.Equal(t, 1, code, "%q: %s", args, stderr)
		assert.Contains(t, stderr, want)
	}
	require.NotContains(t, strings.Join(b.server.Topics(), " "), "nothing")
}

// The purge first cuts an incomplete last line off the file. It refuses a file with other text.
func TestPurgeAppendsToTheFileOfAnEarlierPurge(t *testing.T) {
	const done = `{"id":"1:0:0"}` + "\n"
	for name, c := range map[string]struct {
		text, kept string
		code       int
	}{
		"whole":          {done, done, 0},
		"part of a line": {done + `{"id":"1:1:0","topic":"` + strings.Repeat("x", 100_000), done, 0},
		"no whole line":  {`{"i`, "", 0},
		"other":          {"a\nnote", "a\nnote", 1},
		"other, a line":  {"note", "note", 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t)
			path := filepath.Join(t.TempDir(), "purged.jsonl")
			require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
			code, _, stderr := dlqRun("", "purge", "orders-refunds-DLQ", "-o", path, "-yes")
			require.Equal(t, c.code, code, stderr)
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			rest, ok := strings.CutPrefix(string(text), c.kept)
			require.True(t, ok, string(text))
			if c.code == 1 {
				require.Empty(t, rest)
				require.Contains(t, stderr, "does not end with a letter")
				require.Equal(t, 25, b.server.Subscription(origin+"-refunds-DLQ", "audit").Backlog)
				return
			}
			require.Equal(t, 25, strings.Count(rest, "\n"))
			for line := range strings.Lines(rest) {
				var l deadletter.Letter
				require.NoError(t, json.Unmarshal([]byte(line), &l), line)
			}
		})
	}
}

// No answer means no.
func TestReplayAsksIfOtherSubscriptionsWouldGetTheMessages(t *testing.T) {
	b := newBroker(t)
	for _, answer := range []string{"", "n\n", "what\n"} {
		code, _, stderr := dlqRun(answer, "replay", "-to", "origin", "orders-billing-DLQ", "-yes", "-max", "5")
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "Subscription shipping of orders gets them too.")
	}
	require.Zero(t, b.server.Subscription(origin, "shipping").Backlog)
	code, stdout, stderr := dlqRun("y\n", "replay", "-to", "origin", "orders-billing-DLQ", "-yes", "-max", "5")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "Replayed 5 letters")
	code, _, stderr = dlqRun("", "replay", "-to", "origin", "orders-billing-DLQ", "-yes", "-max", "5", "-others")
	require.Zero(t, code, stderr)
	require.Equal(t, 10, b.server.Subscription(origin, "shipping").Backlog)
}

// The output of -json is valid JSON.
func TestTextOfALetterCannotControlATerminal(t *testing.T) {
	b := newBroker(t)
	evil := "\x1b]0;owned\x07\r\n\u202e"
	b.publish(origin+"-evil-DLQ", &pulsar.ProducerMessage{Payload: []byte(evil), Key: evil,
		Properties: map[string]string{
			"REAL_TOPIC": evil, "REAL_SUBSCRIPTION": evil, "EXCEPTION_TYPE": evil, "EXCEPTION_MESSAGE": evil,
			"DEAD_LETTER_TIME": "-1", "REPLAY_COUNT": "x",
			"ORIGIN_MESSAGE_ID": evil}})
	b.publish(origin+"-evil-DLQ", &pulsar.ProducerMessage{Payload: []byte{0xff, 0xfe},
		Properties: map[string]string{"EXCEPTION_MESSAGE": "\xff"}})
	const topic = "orders-evil-DLQ"
	for _, args := range [][]string{{"groups", topic}, {"peek", topic, "-payload"}, {"replay", topic, "-to", "origin"},
		{"list"}} {
		code, stdout, stderr := dlqRun("", args...)
		assert.Zero(t, code, "%q: %s", args, stderr)
		assert.NotContains(t, stdout, "\x1b", "%q", args)
		assert.NotContains(t, stdout, "\r", "%q", args)
		assert.NotContains(t, stdout, "\u202e", "%q", args)
	}
	for _, args := range [][]string{{"list", "public/default"}, {"groups"}, {"peek", "-payload"}, {"replay"},
		{"export"}, {"export", "-o", t.TempDir() + "/x"},
		{"purge", "-no-export"}, {"replay", "-max", "1", "-yes"}, {"purge", "-no-export", "-yes"}, {"peek"}} {
		if args[0] != "list" {
			args = append(args, "orders-evil-DLQ")
		}
		if args[0] == "replay" {
			args = append(args, "-topic", "orders-billing-RETRY")
		}
		code, stdout, stderr := dlqRun("", append(args, "-json")...)
		assert.Zero(t, code, "%q: %s", args, stderr)
		d := json.NewDecoder(strings.NewReader(stdout))
		for {
			var v any
			err := d.Decode(&v)
			if err == io.EOF {
				break
			}
			require.NoError(t, err, "%q", args)
		}
	}
}

// The line is erased at the end.
func TestProgressOnATerminalIsOneLine(t *testing.T) {
	var out bytes.Buffer
	p := &progress{w: &out, verb: "replayed", terminal: true, total: 1500, begin: time.Now().Add(-10 * time.Second)}
	p.show(deadletter.Report{Seen: 1000, Done: 800})
	require.Equal(t, "\r800 replayed, 1,000 read, 80/s, about 5s left", out.String())
	p.show(deadletter.Report{Seen: 1001, Done: 1001}) // not shown, since it comes too soon after the previous report
	p.end()
	require.True(t, strings.HasSuffix(out.String(), "left\r"+strings.Repeat(" ", 45)+"\r"), "%q", out.String())
	out.Reset()
	p = &progress{w: &out, verb: "replayed", begin: time.Now().Add(-20 * time.Second),
		last: time.Now().Add(-20 * time.Second)}
	p.show(deadletter.Report{Seen: 6, Done: 2, Waiting: 2})
	require.Equal(t, "2 replayed, 6 read, 0/s, canary: 2 not processed yet\n", out.String())
	p.end()
}

func TestInterruptDoesNotHideOtherErrors(t *testing.T) {
	full := errors.New("disk full")
	for want, err := range map[string]error{
		"interrupted":            fmt.Errorf("reading: %w", context.Canceled),
		"interrupted; disk full": errors.Join(errors.Join(context.Canceled, full), context.Canceled),
	} {
		assert.EqualError(t, interrupted("export", false, err), want)
	}
	// with -new, the command would send another canary, and the letters that are not processed yet a second time
	assert.EqualError(t, interrupted("replay", true, context.Canceled),
		"interrupted; the same command without -new goes on from here")
}
