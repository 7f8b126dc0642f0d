package exploretest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Mutant is a rule of the code that a test removes.
type Mutant struct {
	Rule    string // in words
	File    string // name of the file that has the code of the rule, exactly once
	With    string // the code of the rule
	Without string // the code in its place if the rule is removed
}

// Check fails t if File does not have With exactly once, so that a change of the code must change the Mutant, too.
func (m *Mutant) Check(t *testing.T) {
	require.Equal(t, 1, strings.Count(m.code(t), m.With), "the code of this rule is not exactly once in %s", m.File)
}

func (m *Mutant) code(t *testing.T) string {
	code, err := os.ReadFile(m.File)
	require.NoError(t, err)
	return string(code)
}

// Test runs go test with args on this package without the rule. It fails t if the tests pass or time out, and returns
// their output.
func (m *Mutant) Test(t *testing.T, args ...string) (output string) {
	path, err := filepath.Abs(m.File)
	require.NoError(t, err)
	mutant := strings.Replace(m.code(t), m.With, m.Without, 1)
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, filepath.Base(m.File)), filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(changed, []byte(mutant), 0o600))
	replaced, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, replaced, 0o600))
	args = append([]string{"test", "-overlay", overlay, "-vet=off", "-failfast", "-count=1"}, args...)
	out, err := exec.Command("go", args...).CombinedOutput() //nolint:gosec // arguments of tests
	require.NotContains(t, string(out), "[build failed]", "%s", out)
	require.Error(t, err, "no test fails without this rule: %s", m.Rule)
	require.NotContains(t, string(out), "panic: test timed out", "no test fails in time without this rule: %s", m.Rule)
	return string(out)
}
