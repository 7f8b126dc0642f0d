package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// parse parses one test file with the given text.
func parse(t *testing.T, text string) *suite {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a_test.go"), []byte("package pulsar\n\n"+text), 0o644))
	s, err := parseSuite(dir)
	require.NoError(t, err)
	return s
}

func TestSubscriptionsAddressesAndTopicsAreRewritten(t *testing.T) {
	for name, c := range map[string]struct{ from, to string }{
		"subscribe": {
			"func f() { a.b.Subscribe(ConsumerOptions{Topic: newTopicName()}) }",
			"func f() { SubscribeThrough(a.b, ConsumerOptions{Topic: newTopicName()}) }",
		},
		"subscribe of something else": {"func f() { x.Subscribe(ctx, opts) }", "func f() { x.Subscribe(ctx, opts) }"},
		"address": {`const a, b = "http://localhost:8080/x", 1`,
			`var a, b = redirected("http://localhost:8080/x"), 1`},
		"another address": {`const a = "pulsar://broker-1:6650"`, `const a = "pulsar://broker-1:6650"`},
		"address in a function": {
			`func f() { const a = "pulsar://localhost:6650" }`,
			`func f() { var a = redirected("pulsar://localhost:6650") }`,
		},
		"type of a consumer": {
			"func f() { _, ok := c.(*zeroQueueConsumer); use(h.Load().(*consumer)) }",
			"func f() { _, ok := innerOf(c).(*zeroQueueConsumer); use(h.Load().(*consumer)) }",
		},
		"topic": {
			`func f() { topic := "persistent://public/default/t-1"; put("a/persistent/public/default/t-1/partitions"); is("t-1-partition-2") }`,
			`func f() { topic := fresh("persistent://public/default/t-1"); ` +
				`put((fresh("a/persistent/public/default/t-1") + "/partitions")); is((fresh("t-1") + "-partition-2")) }`,
		},
		"path of a topic": {
			`func f() { topicURL := "admin/v2/persistent/public/default/t-1/partitions"; topic := "t-1" }`,
			`func f() { topicURL := (fresh("admin/v2/persistent/public/default/t-1") + "/partitions"); topic := fresh("t-1") }`,
		},
		"pattern": {
			`func f() { topic := Sprintf("regex-%v", n); g(ConsumerOptions{TopicsPattern: "persistent://public/default/regex-.*"}) }`,
			`func f() { topic := Sprintf((fresh("regex-") + "%v"), n); ` +
				`g(ConsumerOptions{TopicsPattern: (fresh("persistent://public/default/regex-") + ".*")}) }`,
		},
		"topic of options": {`func f() { g(ProducerOptions{Topic: "tt", Name: "n"}) }`,
			`func f() { g(ProducerOptions{Topic: fresh("tt"), Name: "n"}) }`},
		"beginning of a topic": {
			`func f() { topic := "persistent://public/default/" + x; topics := "a-%d"; y := "t-11" }`,
			`func f() { topic := "persistent://public/default/" + x; topics := "a-%d"; y := "t-11" }`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := parse(t, c.from)
			require.Equal(t, c.to, strings.TrimPrefix(string(s.files[0].rewritten()), "package pulsar\n\n"))
		})
	}
}

func TestOnlyTestsThatSubscribeAreChosen(t *testing.T) {
	tests := parse(t, `
func TestNone(t *testing.T)        { client.CreateProducer(opts) }
func TestSubscribes(t *testing.T)  { helper(t) }
func helper(t *testing.T)          { client.Subscribe(ConsumerOptions{Type: Shared}) }
func TestKeys(t *testing.T)        { client.Subscribe(ConsumerOptions{Type: KeyShared}) }
func TestDocker(t *testing.T)      { testcontainers.Run(); helper(t) }
func TestTxn(t *testing.T)         { client.NewTransaction(d); helper(t) }
func TestAsks(t *testing.T)        { helper(t); _, ok := c.(*zeroQueueConsumer) }
func TestReaches(t *testing.T)     { helper(t); pc := c.(*consumer).consumers[0] }
func TestQuota(t *testing.T)       { helper(t); put("/admin/v2/namespaces/public/default/backlogQuota") }
func TestMain(m *testing.M)        { helper(nil) }
`).tests(false)
	left := map[string]string{}
	for _, x := range tests {
		left[x.name] = x.leftOut
	}
	require.Equal(t, map[string]string{
		"TestSubscribes": "", "TestKeys": "", "TestAsks": "",
		"TestDocker":  "starts a broker in Docker",
		"TestTxn":     "transactions, which need a coordinator",
		"TestReaches": "reaches into the type of the consumer",
		"TestQuota":   "sets quotas on public/default",
	}, left)
	i := slices.IndexFunc(tests, func(x test) bool { return x.name == "TestKeys" })
	require.True(t, tests[i].keyShared)
}
