package main

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var long = flag.Bool("long", false, "also run the test that compiles pulsar-client-go")

// If upstream adds a method to its Consumer, the compiler must report that redelivery.Consumer lacks it. The method
// must not be promoted from the inner consumer.
func TestANewMethodOfUpstreamFailsToCompile(t *testing.T) {
	if !*long {
		t.Skip("compiles pulsar-client-go: run it with -long")
	}
	ctx := context.Background()
	upstream, err := fetch(ctx, "")
	require.NoError(t, err)
	newer := t.TempDir()
	require.NoError(t, os.CopyFS(newer, os.DirFS(upstream.Dir)))
	folder := filepath.Join(newer, "pulsar")
	consumers := regexp.MustCompile(`(?m)^func \((\w+ \*\w+)\) UnsubscribeForce\(\) error`)
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	methods := "package pulsar\n"
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, receiver := range consumers.FindAllStringSubmatch(string(source), -1) {
			methods += "\nfunc (" + receiver[1] + ") BatchReceive() ([]Message, error) { return nil, nil }\n"
		}
		if filepath.Base(file) == "consumer.go" {
			more := strings.Replace(string(source), "\tUnsubscribeForce() error\n",
				"\tUnsubscribeForce() error\n\tBatchReceive() ([]Message, error)\n", 1)
			require.NotEqual(t, string(source), more)
			require.NoError(t, os.Chmod(file, 0o600))
			require.NoError(t, os.WriteFile(file, []byte(more), 0o600))
		}
	}
	require.NoError(t, os.Chmod(folder, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "newer.go"), []byte(methods), 0o600))

	mod := filepath.Join(t.TempDir(), "newer.mod")
	for from, to := range map[string]string{"../../go.mod": mod,
		"../../go.sum": strings.TrimSuffix(mod, "mod") + "sum"} {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to, text, 0o600))
	}
	out, err := goCommand(ctx, "../..", "mod", "edit", "-replace="+upstreamModule+"="+newer, mod).CombinedOutput()
	require.NoError(t, err, string(out))
	out, err = goCommand(ctx, "../..", "build", "-modfile="+mod, upstreamModule+"/pulsar").CombinedOutput()
	require.NoError(t, err, "the newer upstream itself does not compile: %s", out)
	out, err = goCommand(ctx, "../..", "build", "-modfile="+mod, ".").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "missing method BatchReceive")
}
