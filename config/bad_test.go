package config

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A row has an input and the parts of its error, which are separated by |.
func TestErrorsHaveLinePathValueAndAllowedValues(t *testing.T) {
	const policy = "policies:\n  p: "
	const worker = "policies: {a: {type: fixed, delay: 1s}}\nworkers:\n  w: "
	const consumer = "policies: {a: {type: fixed, delay: 1s}}\nconsumers:\n  c: "
	for in, want := range map[string]string{
		"":                       "configuration is empty, want policies and consumers",
		"# nothing\n":            "configuration is empty",
		"---\n":                  "configuration is empty",
		"policies:\nconsumers:":  "configuration is empty",
		"hello":                  `line 1: the file is "hello", want a map`,
		"[1]":                    "line 1: the file is a list, want a map",
		"policy: {}":             "line 1: policy is an unknown key, want one of policies, consumers, workers",
		"policies: [a]":          "line 1: policies is a list, want a map",
		"policies: {\n":          "line 2: did not find expected node content while parsing a flow node",
		"policies:\n\tp: 1":      "line 2: the line is indented with a tab, want spaces",
		"policies: {}\n---\n":    "line 2: a second document begins, want one",
		"policies: {? [a] : b}":  "line 1: policies has a key that is a list, want a name",
		"policies: {'': b}":      `line 1: policies has a key that is "", want a name`,
		"policies: {a: *b}":      "line 1: unknown anchor 'b' referenced",
		"policies: {<<: {a: 1}}": `line 1: policies has a merge key (<<), which is not supported`,
		"a: \xff":                "configuration: invalid leading UTF-8 octet",

		policy + "{type: fixed, delay: 1s}\n  p: {type: fixed, delay: 2s}": "line 3: policies.p is there twice, want it once: first at line 2",
		policy + "{type: fixed, delay: 1s, delay: 2s}":                     "line 2: policies.p.delay is there twice",
		policy + "{className: Foo, className: Bar}":                        "line 2: policies.p.className is there twice",

		policy:                         "line 2: policies.p has no type, want one of exponential, levels, fixed, or a className",
		policy + "5":                   "line 2: policies.p is 5, want a map",
		policy + "{}":                  "line 2: policies.p has no type",
		policy + "{type: exponetial}":  `line 2: policies.p.type is "exponetial", want one of exponential, levels, fixed`,
		policy + "{type: [fixed]}":     "line 2: policies.p.type is a list, want a text",
		policy + "{type: fixed}":       "line 2: policies.p has no delay, want a duration",
		policy + "{type: levels}":      "line 2: policies.p has no levels, want delays",
		policy + "{type: fixed, d: 1}": "line 2: policies.p has no delay, want a duration|line 2: policies.p.d is an unknown key, want one of type, delay, jitter",

		policy + "{type: fixed, delay: 10}":                `line 2: policies.p.delay is 10, want a duration with its unit, such as "30s"`,
		policy + "{type: fixed, delay: 1w}":                `line 2: policies.p.delay is "1w", want a duration`,
		policy + "{type: fixed, delay: 1s 5s}":             `line 2: policies.p.delay is "1s 5s", want a duration`,
		policy + "{type: fixed, delay: }":                  "line 2: policies.p.delay is empty, want a duration",
		policy + "{type: fixed, delay: [1s]}":              "line 2: policies.p.delay is a list, want a duration",
		policy + "{type: fixed, delay: -1s}":               `line 2: policies.p.delay is "-1s", want 0 or more`,
		policy + "{type: fixed, delay: 1s, jitter: 2}":     "line 2: policies.p.jitter is 2, want a number from 0 to 1",
		policy + "{type: fixed, delay: 1s, jitter: .nan}":  "line 2: policies.p.jitter is .nan, want a number from 0 to 1",
		policy + `{type: fixed, delay: 1s, jitter: "0.1"}`: `line 2: policies.p.jitter is "0.1", want a number from 0 to 1`,
		policy + "{type: levels, levels: [1s, 5s]}":        `line 2: policies.p.levels is a list, want a text such as "1s 5s 10s"`,
		policy + "{type: levels, levels: 1s 5x}":           `line 2: policies.p.levels is "1s 5x": backoff: delay level 2: "5x" is not a delay`,
		policy + "{type: levels, levels: ''}":              `line 2: policies.p.levels is "", want a text`,
		policy + "{type: fixed, delay: 100us}":             `line 2: policies.p.delay is "100us", want whole milliseconds, in ms, s, m or h`,
		policy + "{type: fixed, delay: 1000us}":            `line 2: policies.p.delay is "1000us", want whole milliseconds, in ms, s, m or h`,
		policy + "{type: fixed, delay: 1s5µs}":             `line 2: policies.p.delay is "1s5µs", want whole milliseconds`,
		policy + "{type: fixed, delay: 0.5ms}":             `line 2: policies.p.delay is "0.5ms", want whole milliseconds`,
		policy + "{type: fixed, delay: 0.1s1ns}":           `line 2: policies.p.delay is "0.1s1ns", want whole milliseconds`,
		policy + "{type: exponential, min: 0s}":            `line 2: policies.p.min is "0s", want more than 0`,
		policy + "{type: exponential, multiplier: 1}":      "line 2: policies.p.multiplier is 1, want a number above 1",
		policy + "{type: exponential, multiplier: 0}":      "line 2: policies.p.multiplier is 0, want a number above 1",
		policy + "{type: exponential, multiplier: .inf}":   "line 2: policies.p.multiplier is .inf, want a number above 1",
		policy + "{type: exponential, multiplier: 1e999}":  "line 2: policies.p.multiplier is \"1e999\", want a number above 1",
		policy + "{type: exponential, min: 11m}":           "line 2: policies.p is wrong: backoff: Exponential.Max is 10m0s, want at least Min",
		policy + "\n    type: exponential\n    max: 500ms": `line 4: policies.p.max is "500ms", want at least 1s`,

		policy + "{className: com.acme.Foo}":                         `line 2: policies.p.className is "com.acme.Foo", want one of NegativeAckRedeliveryExponentialBackoff, Exp`,
		policy + "{className: com.x.MultiplierRedeliveryBackoff}":    `line 2: policies.p.className is "com.x.MultiplierRedeliveryBackoff", want one of`,
		policy + "{className: exponential}":                          `line 2: policies.p.className is "exponential", want one of`,
		policy + "{className: [a]}":                                  "line 2: policies.p.className is a list, want a text",
		policy + "{className: MultiplierRedeliveryBackoff, min: 1s}": "line 2: policies.p.min is an unknown key, want one of className, params",
		policy + "{className: MultiplierRedeliveryBackoff, type: x}": "line 2: policies.p.type is an unknown key, want one of className, params",
		"policies:\n  a: &a {type: fixed, delay: 1s}\n  p: {<<: *a}": "line 3: policies.p has a merge key (<<), which is not supported: write its keys out",
		"policies:\n\ta: {type: fixed}":                              "line 2: the line is indented with a tab, want spaces",
		"policies:\n  a:\n  \ttype: fixed":                           "line 3: the line is indented with a tab, want spaces",
		params("5"):                                                  "line 2: policies.p.params is 5, want a map, or a JSON object in a string",
		params("[]"):                                                 "line 2: policies.p.params is a list, want a map, or a JSON object",
		params("'[]'"):                                               `line 2: policies.p.params is "[]", want a map, or a JSON object`,
		params("'minDelayMs: 1'"):                                    `line 2: policies.p.params is "minDelayMs: 1", want a map, or a JSON object`,
		params(`'{"minDelayMs": 1'`):                                 `line 2: policies.p.params is "{\"minDelayMs\": 1", want a map, or a JSON object`,
		params("{minDelayMs: a}"):                                    `line 2: policies.p.params.minDelayMs is "a", want a whole number from 1`,
		params("{minDelayMs: 1s}"):                                   `line 2: policies.p.params.minDelayMs is "1s", want a whole number from 1`,
		params("{minDelayMs: '1000'}"):                               `line 2: policies.p.params.minDelayMs is "1000", want a whole number from 1`,
		params("{minDelayMs: 1.5}"):                                  "line 2: policies.p.params.minDelayMs is 1.5, want a whole number from 1",
		params("{minDelayMs: -1}"):                                   "line 2: policies.p.params.minDelayMs is -1, want a whole number from 1",
		params("{minDelayMs: 10000000000000}"):                       "line 2: policies.p.params.minDelayMs is 10000000000000, want a whole number from 1 to 9223372036854",
		params("{maxDelayMs: 9}"):                                    "line 2: policies.p.params.maxDelayMs is 9, want a whole number from 10000",
		params("{multiplier: two}"):                                  `line 2: policies.p.params.multiplier is "two", want a number above 1`,
		params("{minNackTimeMs: 1}"):                                 "line 2: policies.p.params.minNackTimeMs is an unknown key, want one of minDelayMs, maxDelayMs, multiplier",
		params(`'{"x": 1}'`):                                         "line 2: policies.p.params.x is an unknown key",
		params(`'{"minDelayMs": "a"}'`):                              `line 2: policies.p.params.minDelayMs is "a", want a whole number from 1`,
		params(`'{"minDelayMs": 1, "minDelayMs": 2}'`):               "line 2: policies.p.params.minDelayMs is there twice",

		worker + "{concurency: 1}":            "line 3: workers.w.concurency is an unknown key (did you mean concurrency?), want one of concurrency, timeout, drainTimeout, finishBatches",
		worker + "{concurrency: 0}":           "line 3: workers.w.concurrency is 0, want a whole number from 1 to 1000000",
		worker + "{concurrency: 1000001}":     "line 3: workers.w.concurrency is 1000001, want a whole number from 1 to 1000000",
		worker + "{timeout: 0s}":              `line 3: workers.w.timeout is "0s", want more than 0`,
		worker + "{drainTimeout: -1s}":        `line 3: workers.w.drainTimeout is "-1s", want 0 or more`,
		worker + "{maxAge: 10}":               `line 3: workers.w.maxAge is 10, want a duration with its unit`,
		worker + "{keyOrder: 1}":              "line 3: workers.w.keyOrder is 1, want true or false",
		worker + "{keyOrder: !!bool banana}":  "line 3: workers.w.keyOrder is banana, want true or false",
		worker + "{keyOrder: !!bool yes}":     "line 3: workers.w.keyOrder is yes, want true or false",
		worker + "{timeout: 106752d}":         `line 3: workers.w.timeout is "106752d", want at most 2562047h47m16.854s`,
		worker + "{timeout: 99999999999h}":    `line 3: workers.w.timeout is "99999999999h", want at most 2562047h47m16.854s`,
		worker + "{timeout: 2562047h48m}":     `line 3: workers.w.timeout is "2562047h48m", want at most 2562047h47m16.854s`,
		worker + "{timeout: -106752d}":        `line 3: workers.w.timeout is "-106752d", want a duration with its unit`,
		worker + "{timeout: 1s 106752d}":      `line 3: workers.w.timeout is "1s 106752d", want a duration with its unit`,
		worker + "{pauseOnFailureRatio: 1.5}": "line 3: workers.w.pauseOnFailureRatio is 1.5, want a number above 0, and at most 1",
		worker + "{pauseOnFailureWindow: 5}":  "line 3: workers.w.pauseOnFailureWindow is 5, want pauseOnFailureBackoff too",
		worker + "{pauseOnFailureBackoff: a}": `line 3: workers.w.pauseOnFailureBackoff is "a", want pauseOnFailureRatio too`,
		worker + "{pauseOnFailureBackoff: b}": `line 3: workers.w.pauseOnFailureBackoff is "b", want the name of a policy (a)`,
		worker + "{batchMaxBytes: 1MB}":       `line 3: workers.w.batchMaxBytes is "1MB", want bytes, 1 or more, such as 4096 or "16MiB"; units are KiB, MiB and GiB`,
		worker + "{rateLimit: 0}":             `line 3: workers.w.rateLimit is 0, want a number above 0`,
		worker + "{rateBurst: 5}":             `line 3: workers.w.rateBurst is 5, want rateLimit too`,
		worker + "{localRetries: 5}":          `line 3: workers.w.localRetries is 5, want localRetryBackoff too`,
		worker + "{localRetryBackoff: a}":     `line 3: workers.w.localRetryBackoff is "a", want localRetries too`,

		"consumers: {c: {reconsumeBackoff: b}}":                                  `line 1: consumers.c.reconsumeBackoff is "b", want the name of a policy (the file has none)`,
		consumer + "{nack: 1s}":                                                  "line 3: consumers.c.nack is an unknown key, want one of nackRedeliveryBackoff, nackRedeliveryDelay",
		consumer + "a":                                                           `line 3: consumers.c is "a", want a map`,
		consumer + "{nackRedeliveryBackoff: b}":                                  `line 3: consumers.c.nackRedeliveryBackoff is "b", want the name of a policy (a)`,
		consumer + "{nackRedeliveryBackoff: }":                                   "line 3: consumers.c.nackRedeliveryBackoff is empty, want a text",
		consumer + "{nackRedeliveryBackoff: {type: fixed}}":                      "line 3: consumers.c.nackRedeliveryBackoff is a map, want a text",
		consumer + "{reconsumeBackoff: b}":                                       `line 3: consumers.c.reconsumeBackoff is "b", want the name of a policy (a)`,
		consumer + "{nackRedeliveryBackoff: a, nackRedeliveryDelay: 1s}":         "line 3: consumers.c.nackRedeliveryDelay is set, and so is consumers.c.nackRedeliveryBackoff at line 3",
		consumer + "{nackRedeliveryDelay: -1s}":                                  `line 3: consumers.c.nackRedeliveryDelay is "-1s", want 0 or more`,
		consumer + "{ackTimeout: 0s}":                                            `line 3: consumers.c.ackTimeout is "0s", want more than 0`,
		consumer + "{ackTimeoutRedeliveryBackoff: a}":                            `line 3: consumers.c.ackTimeoutRedeliveryBackoff is "a", want ackTimeout too`,
		consumer + "{maxDeliveries: 0}":                                          "line 3: consumers.c.maxDeliveries is 0, want a whole number from 1 to 4294967295",
		consumer + "{maxDeliveries: 4294967296}":                                 "line 3: consumers.c.maxDeliveries is 4294967296, want a whole number",
		consumer + "{maxReconsumes: 0, reconsumeBackoff: a}":                     "line 3: consumers.c.maxReconsumes is 0, want a whole number from 1 to 4294967295",
		consumer + "{maxReconsumes: 2}":                                          "line 3: consumers.c.maxReconsumes is 2, want reconsumeBackoff too",
		consumer + "{nackRetryTopic: 0s, reconsumeBackoff: a}":                   `line 3: consumers.c.nackRetryTopic is "0s", want more than 0`,
		consumer + "{nackRetryTopic: 1m}":                                        `line 3: consumers.c.nackRetryTopic is "1m", want reconsumeBackoff too`,
		consumer + "{retryTopic: [r]}":                                           "line 3: consumers.c.retryTopic is a list, want a text",
		consumer + "{retryTopic: r, maxDeliveries: 1}":                           `line 3: consumers.c.retryTopic is "r", want reconsumeBackoff too`,
		consumer + "{retryLetterTopic: r}":                                       `line 3: consumers.c.retryLetterTopic is "r", want reconsumeBackoff too`,
		consumer + "{retryTopic: r, retryLetterTopic: r}":                        "line 3: consumers.c.retryLetterTopic is set, and so is consumers.c.retryTopic at line 3, want one of them",
		consumer + "{deadLetterTopic: d}":                                        `line 3: consumers.c.deadLetterTopic is "d", want maxDeliveries or maxRedeliverCount or reconsumeBackoff too`,
		consumer + "{initialSubscriptionName: i}":                                `line 3: consumers.c.initialSubscriptionName is "i", want maxDeliveries or`,
		consumer + "{maxDeliveries: 1, deadLetterTopic: non-persistent://a/b/c}": `line 3: consumers.c.deadLetterTopic is "non-persistent://a/b/c", want a persistent topic`,
		consumer + "{maxDeliveries: 1, deadLetterTopic: 'http://x'}":             `line 3: consumers.c.deadLetterTopic is "http://x", want topic, tenant/namespace/topic or persistent://tenant/namespace/topic`,
		consumer + "{reconsumeBackoff: a, retryTopic: 'persistent://a//c'}":      `line 3: consumers.c.retryTopic is "persistent://a//c", want topic, tenant`,
		consumer + "{attemptLog: true, attemptLogTopic: a b/../c}":               `line 3: consumers.c.attemptLogTopic is "a b/../c", want topic, tenant`,
		consumer + "{attemptLogOptional: true}":                                  `line 3: consumers.c.attemptLogOptional is true, want attemptLog: true too`,
		consumer + "{attemptLogOpenTimeout: 5s}":                                 `line 3: consumers.c.attemptLogOpenTimeout is "5s", want attemptLog: true too`,
		consumer + "{attemptLog: true, attemptLogOpenTimeout: 0s}":               `line 3: consumers.c.attemptLogOpenTimeout is "0s", want more than 0`,
		consumer + "{omitCause: true}":                                           `line 3: consumers.c.omitCause is true, want maxDeliveries or`,
		consumer + "{discard: true}":                                             `line 3: consumers.c.discard is true, want maxDeliveries or`,
		consumer + "{discard: true, maxDeliveries: 2, deadLetterTopic: d}":       `consumers.c.deadLetterTopic is set, and so is consumers.c.discard at line 3, want one of them`,
		consumer + "{discard: true, maxDeliveries: 2, deadBeforeTTL: 1h}":        `consumers.c.deadBeforeTTL is set, and so is consumers.c.discard`,
		consumer + "{deadBeforeTTL: 1h}":                                         `line 3: consumers.c.deadBeforeTTL is "1h", want maxDeliveries or`,
		consumer + "{deadBeforeTTL: 1ms, maxDeliveries: 2}":                      `line 3: consumers.c.deadBeforeTTL is "1ms", want`,
		consumer + "{omitCause: maybe, maxDeliveries: 1}":                        `line 3: consumers.c.omitCause is "maybe", want true or false`,
		consumer + "{maxRedeliverCount: 0}":                                      "line 3: consumers.c.maxRedeliverCount is 0, want a whole number from 1 to 2147483647",
		consumer + "{maxRedeliverCount: 2147483648}":                             "line 3: consumers.c.maxRedeliverCount is 2147483648, want a whole number",
		consumer + "{maxRedeliverCount: 1, maxDeliveries: 2}":                    "line 3: consumers.c.maxRedeliverCount is set, and so is consumers.c.maxDeliveries at line 3, want one of them",
		consumer + "{memoryLimit: -1}":                                           `line 3: consumers.c.memoryLimit is -1, want bytes, 0 or more, such as 4096 or "16MiB"; units are KiB, MiB and GiB`,
		consumer + "{memoryLimit: 1.5MiB}":                                       `line 3: consumers.c.memoryLimit is "1.5MiB", want bytes, 0 or more`,
		consumer + "{memoryLimit: 16 MiB}":                                       `line 3: consumers.c.memoryLimit is "16 MiB", want bytes, 0 or more`,
		consumer + "{memoryLimit: MiB}":                                          `line 3: consumers.c.memoryLimit is "MiB", want bytes, 0 or more`,
		consumer + "{memoryLimit: }":                                             `line 3: consumers.c.memoryLimit is empty, want bytes, 0 or more`,
		consumer + "{memoryLimit: [1]}":                                          `line 3: consumers.c.memoryLimit is a list, want bytes, 0 or more`,
		consumer + "{memoryLimit: 8589934592GiB}":                                `line 3: consumers.c.memoryLimit is "8589934592GiB", want bytes, 0 or more`,
		consumer + "{redeliveryFrom: disk}":                                      `line 3: consumers.c.redeliveryFrom is "disk", want one of auto, memory, broker`,
		consumer + "{redeliveryFrom: }":                                          "line 3: consumers.c.redeliveryFrom is empty, want a text",
		consumer + "{redeliveryFrom: [auto]}":                                    "line 3: consumers.c.redeliveryFrom is a list, want a text",
		consumer + "{resolution: 0s}":                                            `line 3: consumers.c.resolution is "0s", want at least 1ms`,
		consumer + "{resolution: 61s}":                                           `line 3: consumers.c.resolution is "61s", want at most 1m0s`,
	} {
		c, err := Parse([]byte(in))
		if assert.Error(t, err, "%q", in) {
			for want := range strings.SplitSeq(want, "|") {
				assert.Contains(t, err.Error(), want, "%q", in)
			}
		}
		assert.Nil(t, c, "%q", in)
	}
}

func params(p string) string {
	return fmt.Sprintf("policies:\n  p: {className: MultiplierRedeliveryBackoff, params: %s}", p)
}

func TestUnknownKeyGetsAHintIfSimilarToAKeyOrKnownFromJava(t *testing.T) {
	for key, want := range map[string]string{
		"maxDelivery":                      " (did you mean maxDeliveries?), want one of nack",
		"maxdeliveries":                    " (did you mean maxDeliveries?), want one of nack",
		"max_deliveries":                   " (did you mean maxDeliveries?)",
		"maxReconsume":                     " (did you mean maxReconsumes?)",
		"deadletterTopic":                  " (did you mean deadLetterTopic?)",
		"intialSubscriptionName":           " (did you mean initialSubscriptionName?)",
		"memorylimits":                     " (did you mean memoryLimit?)",
		"redeliverFrom":                    " (did you mean redeliveryFrom?)",
		"nackBackoff":                      ", want one of nack",
		"ü":                                ", want one of nack",
		"negativeAckRedeliveryBackoff":     " (here it is nackRedeliveryBackoff, with the name of a policy), want one of nack",
		"negativeAckRedeliveryDelayMicros": ` (here it is nackRedeliveryDelay, with a unit, such as "60s")`,
		"ackTimeoutMillis":                 ` (here it is ackTimeout, with a unit, such as "30s")`,
		"retryEnable":                      " (here reconsumeBackoff subscribes to the retry topic)",
		"deadLetterPolicy":                 " (here its fields are keys of the consumer)",
	} {
		_, err := Parse([]byte("consumers:\n  c:\n    " + key + ": 1"))
		assert.ErrorContains(t, err, "line 3: consumers.c."+join("", key)+" is an unknown key"+want)
	}
	_, err := Parse([]byte("workers: {w: {ackTimeoutMillis: 1}}"))
	assert.ErrorContains(t, err, "ackTimeoutMillis is an unknown key, want one of concurrency", "a worker has no ack timeout")
	_, err = Parse([]byte("consumer: {w: {ackTimeout: 1s}}"))
	assert.ErrorContains(t, err, "line 1: consumer is an unknown key (did you mean consumers?), want one of")
}

func TestDistanceCountsChangedBytes(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"abc", "bc", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 2}, {"a", "abcdefghijk", 8}} {
		assert.Equal(t, c.want, distance(c.a, c.b, 7), c)
		assert.Equal(t, c.want, distance(c.b, c.a, 7), c)
	}
}

func TestLoadReportsAllErrorsAtOnceWithFileAndLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "redelivery.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`policies:
  gentle: {type: exponential, min: 10}
  gentle: {type: fixed, delay: 1s}
consumers:
  billing:
    nackRedeliveryBackoff: gentel
    ackTimeot: 1s
`), 0o600))
	_, err := Load(path)
	assert.EqualError(t, err, strings.ReplaceAll(`FILE:3: policies.gentle is there twice, want it once: first at FILE:2
FILE:2: policies.gentle.min is 10, want a duration with its unit, such as "30s"
FILE:7: consumers.billing.ackTimeot is an unknown key (did you mean ackTimeout?), want one of `+strings.Join(consumerKeys, ", ")+`
FILE:6: consumers.billing.nackRedeliveryBackoff is "gentel", want the name of a policy (gentle)`, "FILE", path))
}

func TestInputThatWouldUseUpMemoryIsRefusedCheaply(t *testing.T) {
	t.Setenv("REDELIVERY_POLICIES_K1_JITTER", "1")
	bomb := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c <= 'j'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", c-1), 9), ", "))
	}
	var aliases strings.Builder
	for i := range 400 {
		fmt.Fprintf(&aliases, "  p%d: {levels: *t}\n", i)
	}
	const tooLong, tooDeep, tooMany = "is longer than 1048576 bytes", "is nested more than 32 deep", "has more than 100000 values"
	for name, c := range map[string]struct{ in, want string }{
		"10 MB of lists":           {strings.Repeat("[", 10<<20), tooLong},
		"10 MB of maps":            {strings.Repeat("{a: ", 10<<18), tooLong},
		"1 MB of lists":            {strings.Repeat("[", 1<<20), "line 1: exceeded max depth"},
		"1 MB of maps":             {strings.Repeat("{a: ", 1<<18), "line 1: exceeded max depth"},
		"1 MB of items":            {strings.Repeat("- ", 1<<19), "line 1: exceeded max depth"},
		"1 MB of keys":             {strings.Repeat("? ", 1<<19), "line 1: exceeded max depth"},
		"lists, closed":            {"policies: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "line 1: policies[0]"},
		"lists too deep":           {"policies: " + strings.Repeat("[", 33) + strings.Repeat("]", 33), tooDeep},
		"JSON too deep":            {params("'{\"a\":" + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}'"), tooDeep},
		"aliases of aliases":       {bomb, tooMany},
		"aliases of a text":        {"policies:\n  a: {levels: &t '" + strings.Repeat("1s ", 1000) + "'}\n" + aliases.String(), "has more than 1048576 bytes of text"},
		"an alias of itself":       {"policies: &a [*a]", tooDeep},
		"an alias of its map":      {"policies: &a {a: *a, b: *a}", "than"},
		"aliases of itself":        {"policies: &a [*a, *a, *a, *a, *a, *a, *a, *a, *a]", "than"},
		"an alias as key":          {"policies: {&a [x]: 1, *a : 2}", "has a key that is a list"},
		"a megabyte as value":      {"policies: {p: {type: " + strings.Repeat("x", 1<<20-100) + "}}", `…", want one of`},
		"a megabyte as key":        {"policies: {" + strings.Repeat("x", 1<<20-100) + ": 1}", "is 1, want a map"},
		"one key 40,000 times":     {"policies: {" + strings.Repeat("x,", 40_000) + "}", "is there twice"},
		"a long key of a list":     {"? " + strings.Repeat("a", 60_000) + "\n: [" + strings.Repeat("0,", 20_000) + "0]\n", "is an unknown key"},
		"a long key of deep lists": {"policies: {" + strings.Repeat("a", 30_000) + ": {type: a, b: [" + strings.Repeat("[[0]],", 20_000) + "0]}}", "…\".type is \"a\""},
		"a long key of many keys":  {"policies: {" + strings.Repeat("a", 60_000) + ": {" + manyKeys(20_000) + "}}", "has no type"},
		"wrong references":         {manyReferences(15_000), "want the name of a policy (k0, k1, k10, k100, k1000, k10000, k10001, k10002, k10003, k10004, and 14990 more)"},
		"40,000 policies":          {"policies: {" + manyKeys(40_000) + "}", "has no type"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			_, err := Parse([]byte(c.in))
			runtime.ReadMemStats(&after)
			require.ErrorContains(t, err, c.want)
			t.Logf("%v, %d MB allocated", time.Since(start).Round(time.Millisecond), (after.TotalAlloc-before.TotalAlloc)>>20)
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(300<<20))
			for line := range strings.Lines(err.Error()) {
				assert.Less(t, len(line), 1000)
			}
		})
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%d: , ", i)
	}
	return b.String()
}

// manyReferences returns a file with n policies, and n consumers that name a policy that does not exist.
func manyReferences(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%d: {reconsumeBackoff: x}, ", i)
	}
	return "policies: {" + manyKeys(n) + "}\nconsumers: {" + b.String() + "}"
}
