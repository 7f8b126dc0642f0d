package testkit

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const leaking = "REDELIVERY_TEST_LEAKING"

// InOwnProcess runs the calling test again in a new process, and returns true. In the new process it returns false, so
// that the test continues there. In that process goroutines may leak: upstream's goroutines outlive Unsubscribe, and
// Close of a pattern's consumer does not wait for the goroutine that looks for topics.
func InOwnProcess(t *testing.T) bool {
	if os.Getenv(leaking) != "" {
		return false
	}
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run", "^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$")
	cmd.Env = append(os.Environ(), leaking+"=1")
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, string(said))
	require.Contains(t, string(said), "--- PASS: "+t.Name())
	return true
}

// StartProcess starts a test in a process of its own, with one more environment variable. It waits for the first line
// that the process writes, and returns the line.
func StartProcess(t *testing.T, test, variable string) (process *exec.Cmd, line string) {
	process = exec.Command(os.Args[0], "-test.run=^"+test+"$") //nolint:gosec // the test itself
	process.Env = append(os.Environ(), variable)
	stdout, err := process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	line, err = bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	return process, line
}

// Kill kills a process, and waits until it has ended.
func Kill(t *testing.T, process *exec.Cmd) {
	require.NoError(t, process.Process.Kill())
	var exit *exec.ExitError
	require.ErrorAs(t, process.Wait(), &exit)
	require.Equal(t, -1, exit.ExitCode(), "the process was not killed")
}
