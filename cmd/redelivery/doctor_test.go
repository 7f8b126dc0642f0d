package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

func examined(args ...string) (code int, stdout, stderr string) {
	return command(append([]string{"doctor"}, args...)...)
}

func inProcess(t *testing.T) *pulsartest.Server {
	server := pulsartest.NewServer(t)
	t.Setenv("PULSAR_URL", server.URL())
	t.Setenv("PULSAR_ADMIN_URL", server.AdminURL())
	return server
}

// Without a file, only the topic and then the subscription that do not exist are problems. With the file, each option
// that the broker cannot fulfill is a problem, with a remedy and exit code 1.
func TestDoctorFindsOptionsThatTheBrokerCannotFulfill(t *testing.T) {
	server := inProcess(t)
	code, stdout, stderr := examined("-subscription", "billing", "orders")
	assert.Equal(t, 1, code, "a topic that does not exist, and may be misspelled, was no problem")
	assert.Empty(t, stderr)
	assert.Regexp(t, `(?m)^ok       reachable +the broker and its admin API answer; the topic is not\n +there yet$`,
		stdout)
	assert.Regexp(t, `(?m)^problem  topic +orders does not exist`, stdout)
	assert.Contains(t, stdout, "0 warnings, 1 problem")
	server.Publish(t, "orders", &pulsar.ProducerMessage{})
	code, stdout, _ = examined("-subscription", "billing", "orders")
	assert.Equal(t, 1, code)
	assert.Regexp(t, `(?m)^problem  subscription +the subscription does not exist\s+\(the topic has\s+none\)`, stdout)

	file := filepath.Join(t.TempDir(), "redelivery.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
policies: {short: {type: exponential, min: 1s, max: 1s}}
consumers: {billing: {nackRedeliveryBackoff: short, maxDeliveries: 3, ackTimeout: 1s, reconsumeBackoff: short}}
workers: {billing: {drainTimeout: 1m}}`), 0o600))
	args := []string{"orders", "-subscription", "billing", "-config", file, "-consumer", "billing", "-type",
		"Exclusive", "-handler-time", "2s",
		"-grace-period", "30s", "-queue", "1"}
	code, stdout, stderr = examined(args...)
	assert.Equal(t, 1, code)
	assert.Empty(t, stderr)
	for _, want := range []string{
		`(?m)^problem  type-delays +the retry topic does not delay: `,
		`(?m)^problem  ack-timeout +the ack timeout is 1s, a handler takes 2s$`,
		`(?m)^warning  policy-range +delays of nacks are 1s to 1s; `,
		`(?m)^warning  outage `,
		`(?m)^warning  drain +a drain needs 66s, and has 30s$`,
		`(?m)^         remedy: terminationGracePeriodSeconds: 66,`,
		`(?m)^         https://\S+/docs/checks.md#drain$`,
	} {
		assert.Regexp(t, want, stdout)
	}
	for line := range strings.Lines(stdout) {
		assert.True(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) <= width ||
			len(strings.Fields(line)) == 1, line)
	}

	code, stdout, _ = examined(append(args, "-json")...)
	assert.Equal(t, 1, code)
	var findings []struct{ Check, Status, Found, Why, Remedy, Link string }
	require.NoError(t, json.Unmarshal([]byte(stdout), &findings))
	for _, f := range findings {
		assert.Contains(t, []string{"ok", "unknown", "warning", "problem"}, f.Status)
		assert.Equal(t, f.Status == "warning" || f.Status == "problem", f.Why != "" && f.Remedy != "" && f.Link != "",
			f.Check)
	}
}

// The command also says that no broker answers.
func TestDoctorWithoutABrokerRunsChecksThatNeedNone(t *testing.T) {
	code, stdout, _ := examined("-url", "pulsar://127.0.0.1:1", "-admin-url", "http://127.0.0.1:1", "-subscription",
		"s", "t")
	assert.Equal(t, 1, code)
	assert.Contains(t, stdout, "no connection to the broker at pulsar://127.0.0.1:1")
	assert.Contains(t, stdout, "the admin API at http://127.0.0.1:1")
	assert.Regexp(t, `(?m)^ok +keep-alive`, stdout)
	assert.NotContains(t, stdout, "unacked-limits")
}

func TestDoctorRefusesWrongCommandLines(t *testing.T) {
	for want, args := range map[string][]string{
		"no topic is given":                                   {"-subscription", "s"},
		"-subscription is missing":                            {"t"},
		`argument is "u", want only one topic`:                {"t", "-subscription", "s", "u"},
		"only one of -config and -consumer is given":          {"t", "-subscription", "s", "-config", "f"},
		`"" for flag -config: want a file`:                    {"t", "-subscription", "s", "-config", "", "-consumer", "c"},
		`want one of Exclusive, Shared, Failover, Key_Shared`: {"t", "-type", "shared"},
		"a unit is missing":                                   {"t", "-handler-time", "20"},
		"want more than 0":                                    {"t", "-keep-alive", "0s"},
		"want a number above 0, and at most 1":                {"t", "-failing", "2"},
		"want a whole number, 1 to":                           {"t", "-queue", "0"},
		`topic is "http://x", want topic, tenant/namespace/topic or persistent://tenant/namespace/topic`:          {"http://x", "-subscription", "s"},
		`topic is "persistent://a//c", want topic, tenant/namespace/topic or persistent://tenant/namespace/topic`: {"persistent://a//c", "-subscription", "s"},
	} {
		code, stdout, stderr := examined(args...)
		assert.Equal(t, 2, code, want)
		assert.Empty(t, stdout, want)
		assert.Contains(t, stderr, want)
	}
	code, _, stderr := examined("t", "-subscription", "s", "-config", "testdata/dead.yaml", "-consumer", "nobody")
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, `consumer is "nobody", want one of the file's`)
	code, stdout, _ := examined("-h")
	assert.Zero(t, code)
	for line := range strings.Lines(stdout) {
		assert.LessOrEqual(t, utf8.RuneCountInString(line), width+1, line)
	}
}

// If a role may not look something up, the finding says so, and the other checks run. If it may not publish to the dead
// letter topic, that is a problem.
func TestDoctorReportsMissingPermissions(t *testing.T) {
	g, b := guardedBroker(t)
	const dlq = origin + "-billing-DLQ"
	b.subscribe(origin, "billing")
	b.subscribe(dlq, "audit")
	call := func(method, path string, body any) {
		require.NoError(t, admin.Call(context.Background(), g.admin, method, path, body, nil))
	}
	call("POST", origin+"/permissions/consumer", []string{"consume"})
	call("POST", dlq+"/permissions/consumer", []string{"consume"})
	call("POST", origin+"/permissions/publisher", []string{"consume", "produce"})
	call("POST", dlq+"/permissions/publisher", []string{"consume", "produce"})
	for role, want := range map[string]struct {
		code  int
		lines []string
	}{
		"nobody": {0, []string{`unknown +topic +no right to read\s+persistent/\S+\s+\(401\)`,
			`unknown +expiration +no right to read`}},
		"consumer":  {1, []string{`problem +producing +\S+-DLQ: .*`, `unknown +expiration +no right`, `ok +topic`}},
		"publisher": {0, []string{`ok +producing +yes`, `unknown +expiration +no right`, `ok +topic`}},
	} {
		code, stdout, stderr := examined("-subscription", "billing", origin, "-auth-plugin",
			"org.apache.pulsar.client.impl.auth.AuthenticationToken", "-auth-params", "file://"+g.token(t, role))
		assert.Equal(t, want.code, code, "%s: %s%s", role, stdout, stderr)
		for _, line := range want.lines {
			assert.Regexp(t, `(?m)^`+line, stdout, role)
		}
		t.Logf("%s:\n%s", role, stdout)
	}
	code, stdout, _ := examined("-subscription", "billing", origin) // as the super user
	assert.Zero(t, code, stdout)
	assert.Contains(t, stdout, "0 unknown, 0 warnings, 0 problems")
}

func TestConsumerThatDiscardsNeedsNoDeadLetterTopic(t *testing.T) {
	inProcess(t)
	file := filepath.Join(t.TempDir(), "redelivery.yaml")
	require.NoError(t, os.WriteFile(file, []byte("consumers: {c: {maxDeliveries: 5, discard: true}}"), 0o600))
	_, stdout, stderr := examined("-subscription", "billing", "-config", file, "-consumer", "c", "orders")
	require.Empty(t, stderr)
	require.Contains(t, stdout, "orders does not exist")
	require.NotContains(t, stdout, "dead-letter")
}
