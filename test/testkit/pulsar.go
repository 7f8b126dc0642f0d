package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// StartPulsar starts a real broker for this test, with settings of standalone.conf.
func StartPulsar(t *testing.T, name string, conf map[string]string) (url, admin string) {
	env := append(os.Environ(), fmt.Sprintf("PULSAR_NAME=%s-%d", name, os.Getpid()))
	for key, value := range conf {
		env = append(env, "PULSAR_CONF_"+key+"="+value)
	}
	script := func(command, line string) string {
		cmd := exec.Command("../../test/scripts/pulsar", command)
		cmd.Env = env
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		require.NoError(t, err, said.String())
		found := regexp.MustCompile(line).FindStringSubmatch(string(out))
		require.NotNil(t, found, "%s: %s", command, out)
		return found[len(found)-1]
	}
	admin = script("start", `PULSAR_ADMIN_URL=(\S+)`)
	data := script("status", `data +(\S+)`)
	t.Cleanup(func() {
		script("stop", "")
		require.NoError(t, os.RemoveAll(data))
	})
	return script("env", `PULSAR_URL=(\S+)`), admin
}
