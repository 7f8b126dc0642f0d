package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The command uses the file nevertheless.
func TestCommandPrintsANoteForEachCustomPolicyType(t *testing.T) {
	inProcess(t)
	file := filepath.Join(t.TempDir(), "redelivery.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
policies: {short: {type: fibonacci, unit: 1s}, long: {className: com.example.MultiplierRedeliveryBackoff, params: {unit: 1s}}, plain: {type: fixed, delay: 5s},
  java: {className: org.apache.pulsar.client.impl.MultiplierRedeliveryBackoff}}
consumers: {billing: {nackRedeliveryBackoff: short, maxDeliveries: 3}}`), 0o600))
	for command, args := range map[string][]string{
		"plan":     {"-config", file, "-consumer", "billing"},
		"simulate": {"-config", file, "-consumer", "billing", "-outage", "1m"},
		"doctor":   {"-config", file, "-consumer", "billing", "-subscription", "billing", "orders"},
	} {
		_, stdout, stderr := commandOf(command, args...)
		require.NotEmpty(t, stdout, command)
		require.Equal(t, "redelivery "+command+`: note: policy "long" has the custom type "com.example.MultiplierRedeliveryBackoff", which this `+
			"command does not know: its delays are assumed to be 1m0s\nredelivery "+
			""+command+`: note: policy "short" has the custom type "fibonacci", which this `+
			"command does not know: its delays are assumed to be 1m0s\n", stderr)
	}
}

func TestEachErrorOfFileHasItsLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "redelivery.yaml")
	require.NoError(t, os.WriteFile(file,
		[]byte("policies:\n  a: {type: fixed, delay: 5}\n  b: {type: fixed, delay: x}\n"), 0o600))
	code, stdout, stderr := commandOf("plan", "-config", file)
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
	require.Len(t, lines, 2)
	for i, line := range lines {
		require.Regexp(t, `^redelivery plan: .*redelivery.yaml:`+string(rune('2'+i))+`: policies\.[ab]\.delay is`, line)
	}
}

func commandOf(name string, args ...string) (code int, stdout, stderr string) {
	return command(append([]string{name}, args...)...)
}
