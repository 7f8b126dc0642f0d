package main

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
)

// guarded is a real broker that the test starts. A role with a token may do what was granted to it. A client without a
// token may do everything.
type guarded struct {
	url, admin string
	secret     []byte
}

func startGuarded(t *testing.T) guarded {
	g := guarded{secret: make([]byte, 32)}
	_, _ = rand.Read(g.secret)
	script := func(command, line string) string {
		cmd := exec.Command("../../test/scripts/pulsar", command)
		cmd.Env = append(os.Environ(), fmt.Sprintf("PULSAR_NAME=guarded-%d", os.Getpid()),
			"PULSAR_CONF_authenticationEnabled=true", "PULSAR_CONF_authorizationEnabled=true",
			"PULSAR_CONF_authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
			"PULSAR_CONF_tokenSecretKey=data:;base64,"+base64.StdEncoding.EncodeToString(g.secret),
			"PULSAR_CONF_anonymousUserRole=root", "PULSAR_CONF_superUserRoles=root")
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		require.NoError(t, err, said.String())
		found := regexp.MustCompile(line).FindStringSubmatch(string(out))
		require.NotNil(t, found, "%s: %s", command, out)
		return found[len(found)-1]
	}
	g.admin = script("start", `PULSAR_ADMIN_URL=(\S+)`)
	data := script("status", `data +(\S+)`)
	t.Cleanup(func() {
		script("stop", "")
		require.NoError(t, os.RemoveAll(data))
	})
	g.url = script("env", `PULSAR_URL=(\S+)`)
	return g
}

// token returns the name of a file with a JWT of a role, signed with HS256.
func (g guarded) token(t *testing.T, role string) string {
	encode := base64.RawURLEncoding.EncodeToString
	claims := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode(fmt.Appendf(nil, `{"sub":%q}`, role))
	mac := hmac.New(sha256.New, g.secret)
	mac.Write([]byte(claims))
	path := filepath.Join(t.TempDir(), role)
	require.NoError(t, os.WriteFile(path, []byte(claims+"."+encode(mac.Sum(nil))), 0o600))
	return path
}

// guardedBroker starts a guarded broker and sets the environment so that the tool uses it. It also returns the broker
// with a client that may do everything.
func guardedBroker(t *testing.T) (guarded, *broker) {
	t.Helper()
	if os.Getenv("PULSAR_URL") == "" || os.Getenv("PULSAR_ADMIN_URL") == "" {
		t.Skip("only with a real broker; set PULSAR_URL and PULSAR_ADMIN_URL")
	}
	g := startGuarded(t)
	t.Setenv("PULSAR_URL", g.url)
	t.Setenv("PULSAR_ADMIN_URL", g.admin)
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: g.url, Logger: logtest.Client(t)})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return g, &broker{t: t, client: client}
}

// The command's error says that the permission is missing. The grants in docs/deadletter.md suffice.
func TestDlqCommandWithoutPermissionChangesNothing(t *testing.T) {
	g, b := guardedBroker(t)
	const dlq, retry, journal = origin + "-billing-DLQ", origin + "-billing-RETRY", origin + "-billing-DLQ-audit"
	b.subscribe(retry, "billing")
	b.subscribe(dlq, "audit")
	for i := range 20 {
		b.publish(dlq, &pulsar.ProducerMessage{Payload: fmt.Append(nil, i),
			Properties: map[string]string{"REAL_TOPIC": origin, "REAL_SUBSCRIPTION": "billing"}})
	}
	grant := func(role, path string, actions ...string) {
		require.NoError(t, admin.Call(context.Background(), g.admin, "POST", path+"/permissions/"+role, actions, nil))
	}
	require.NoError(t, admin.Call(context.Background(), g.admin, "PUT", journal, nil, nil))
	grant("looker", dlq, "consume")
	grant("looker", journal, "consume")
	grant("operator", dlq, "consume")
	grant("operator", retry, "produce", "consume")
	grant("operator", journal, "produce", "consume")

	verbs := map[string][]string{
		"groups": {"groups", dlq}, "peek": {"peek", dlq}, "plan": {"replay", dlq}, "export": {"export", dlq},
		"replay": {"replay", dlq, "-yes"}, "purge": {"purge", dlq, "-yes", "-no-export"},
	}
	topics := func() (all []string) {
		require.NoError(t, admin.Call(context.Background(), g.admin, "GET", "persistent/public/default", nil, &all))
		return all
	}
	before := topics()
	for _, c := range []struct{ role, may string }{
		{"nobody", ""},
		{"looker", "groups peek export"},
		{"operator", "groups peek export plan replay purge"},
	} {
		params := []string{"-auth-plugin", "org.apache.pulsar.client.impl.auth.AuthenticationToken", "-auth-params",
			"file://" + g.token(t, c.role)}
		for _, verb := range []string{"groups", "peek", "export", "plan", "replay", "purge"} {
			code, stdout, stderr := dlqRun("", append(verbs[verb], params...)...)
			if strings.Contains(c.may, verb) {
				require.Zero(t, code, "%s %s: %s", c.role, verb, stderr)
				continue
			}
			require.Equal(t, 1, code, "%s %s: %s", c.role, verb, stdout)
			require.Regexp(t, `(?i)authoriz|forbidden`, stderr, "%s %s", c.role, verb)
			t.Logf("%s %s: %s", c.role, verb, stderr)
			require.ElementsMatch(t, before, topics())
		}
	}
	var stats struct {
		Subscriptions map[string]struct{ MsgBacklog int }
	}
	require.NoError(t, admin.Call(context.Background(), g.admin, "GET", retry+"/stats?getPreciseBacklog=true", nil,
		&stats))
	require.Equal(t, 20, stats.Subscriptions["billing"].MsgBacklog)
	grant("looker", "namespaces/public/default", "consume")
	for role, want := range map[string]int{"nobody": 1, "looker": 0} {
		code, _, stderr := dlqRun("", "list", "public/default", "-auth-plugin", "token", "-auth-params",
			"file://"+g.token(t, role))
		require.Equal(t, want, code, "%s: %s", role, stderr)
	}
}
