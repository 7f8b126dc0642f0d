package redelivery

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFailuresHaveOperations finds the texts of all failures in the source.
func TestFailuresHaveOperations(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	n := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range regexp.MustCompile(`\.fail\("([^"]*)"`).FindAllStringSubmatch(string(source), -1) {
			n++
			assert.NotEqual(t, "other", operationOf(found[1], ErrNotHeld), found[1])
		}
	}
	assert.Greater(t, n, 7)
}
