package docs_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

const fifteenPage = "docs/fifteen-minutes.md"

// mark separates the outputs of the page's commands.
const mark = "=== next command"

// TestFifteenMinutes writes the files of the page and runs its commands, in order, in one shell. It uses the broker in
// process instead of the one that the page starts, and this working tree instead of a clone.
func TestFifteenMinutes(t *testing.T) {
	testkit.TakesLong(t)
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("the page needs curl")
	}
	bytes, err := os.ReadFile(fifteenPage)
	require.NoError(t, err)
	page := string(bytes)
	root, err := os.Getwd()
	require.NoError(t, err)
	port := fmt.Sprint(freePort(t))
	script := "set -e\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\ngit() { ln -s " + root + " redelivery; }\n"
	var outputs []string // the outputs that the page shows
	for _, block := range regexp.MustCompile("(?s)(?:`([a-z_]+\\.go)`:\n\n)?```(\\w+)\n(.*?)```\n").FindAllStringSubmatch(page, -1) {
		switch file, kind, text := block[1], block[2], block[3]; kind {
		case "go":
			require.NotEmpty(t, file, text)
			script += "cat > " + file + " <<'END OF FILE'\n" + text + "END OF FILE\n"
		case "yaml":
			require.NoError(t, yaml.Unmarshal([]byte(text), &map[string]any{}))
		case "sh":
			script += regexp.MustCompile(`(?m)^.*test/scripts/pulsar.*$`).ReplaceAllString(text, "")
		case "console":
			for _, step := range strings.Split("\n"+text, "\n$ ")[1:] {
				command, output, _ := strings.Cut(step+"\n", "\n")
				script += fmt.Sprintf("echo '%s'\n%s\necho '%[1]s'\n", mark, command)
				outputs = append(outputs, strings.TrimRight(output, "\n"))
			}
		}
	}
	server := pulsartest.NewServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", strings.ReplaceAll(script, "2112", port))
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PULSAR_URL="+server.URL(), "PULSAR_ADMIN_URL="+server.AdminURL(), "GOSUMDB=off", "GOFLAGS=", "COLUMNS=80")
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = t.Output()
	stdout, err := cmd.Output()
	require.NoError(t, err, "%s", stdout)
	var printed []string
	for i, text := range strings.Split(string(stdout), mark+"\n") {
		if i%2 == 1 {
			printed = append(printed, strings.TrimRight(text, "\n"))
		}
	}
	require.Len(t, printed, len(outputs))
	if *update {
		require.NoError(t, os.WriteFile(filepath.Join(root, fifteenPage), []byte(withOutputs(page, printed)), 0o600))
		return
	}
	for i := range outputs {
		assert.Equal(t, masked(outputs[i]), masked(printed[i]),
			"the page's output is out of date: run go test ./test/docs -update")
	}
}

// freePort returns an unused port from a range whose ports the kernel does not give to other tests.
func freePort(t *testing.T) int {
	for range 100 {
		port := 20000 + rand.IntN(10000)
		listener, err := net.Listen("tcp", fmt.Sprintf("localhost:%d", port))
		if err == nil {
			require.NoError(t, listener.Close())
			return port
		}
	}
	require.Fail(t, "no port from 20000 to 29999 is free")
	return 0
}

// withOutputs returns the page with the printed outputs instead of its own.
func withOutputs(page string, printed []string) string {
	return regexp.MustCompile("(?s)```console\n.*?```\n").ReplaceAllStringFunc(page, func(block string) string {
		text := "```console\n"
		for _, command := range regexp.MustCompile(`(?m)^\$ .*$`).FindAllString(block, -1) {
			text += command + "\n" + printed[0] + "\n"
			printed = printed[1:]
		}
		return text + "```\n"
	})
}

// masked removes from an output what differs between runs: ids, ages, the order of letters, the sizes of batches, and
// the widths of columns.
func masked(output string) string {
	output = regexp.MustCompile(`\b[0-9a-f]{12}\b|\b\d+(:\d+)+\b|\b\d+s\b|"id":\d+|\d+ entries`).ReplaceAllString(output, "#")
	return regexp.MustCompile(` +`).ReplaceAllString(output, " ")
}
