package docs_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// modulesOf returns the modules with code in a program that imports a package.
func modulesOf(t *testing.T, importPath string) []string {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", importPath).Output()
	require.NoError(t, err)
	modules := strings.Fields(string(out))
	slices.Sort(modules)
	return slices.Compact(modules)
}

// The README names the modules that a package adds to those of pulsar-client-go.
func TestReadmeNamesTheModulesOfEachPackage(t *testing.T) {
	const root = "github.com/pulsar-redelivery/redelivery"
	client := modulesOf(t, "github.com/apache/pulsar-client-go/pulsar")
	for path, adds := range map[string][]string{
		"":        {},
		"/worker": {"golang.org/x/time"},
		"/config": {"go.yaml.in/yaml/v4", "golang.org/x/time"},
	} {
		got := slices.DeleteFunc(modulesOf(t, root+path), func(m string) bool { return m == root || slices.Contains(client, m) })
		require.Equal(t, adds, got, "package %q", path)
	}
}
