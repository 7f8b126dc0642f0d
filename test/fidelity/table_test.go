package fidelity

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var versions = []string{"3.0", judge, "4.2"}

// The tables are in the documentation of pulsartest and in README.md. With -update the test writes them.
func TestTablesAgreeWithTheScenarios(t *testing.T) {
	replace(t, "../../pulsartest/doc.go", `(?m)(^// table shows .* the same trace:\n//\n)(?:^//\t.*\n)+`, "$1"+comment(table()))
	replace(t, "README.md", `(?s)(<!-- differences -->\n).*(<!-- end -->)`, "${1}"+differences()+"$2")
}

// replace replaces the matches of pattern in a file if -update is set. Without -update, it checks that this would not
// change the file.
func replace(t *testing.T, file, pattern, by string) {
	t.Helper()
	have := read(t, file)
	re := regexp.MustCompile(pattern)
	require.Regexp(t, re, have, file)
	want := re.ReplaceAllString(have, by)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o666))
	} else {
		require.Equal(t, want, have, "the table is out of date: run go test ./test/fidelity -run TestTablesAgreeWithTheScenarios -update")
	}
}

// table shows, for each group and version of Pulsar, how many scenarios have the same trace there as in process.
func table() string {
	out := fmt.Sprintf("%-24s", "")
	for _, v := range versions {
		out += fmt.Sprintf("%14s", "Pulsar "+v)
	}
	all := make([]int, len(versions))
	total := 0
	for _, g := range groups {
		out += fmt.Sprintf("\n%-24s", g.name)
		for i, v := range versions {
			same := 0
			for _, sc := range g.scenarios {
				if sc.differs[v] == "" {
					same++
				}
			}
			all[i] += same
			out += fmt.Sprintf("%14s", fmt.Sprintf("%d of %d", same, len(g.scenarios)))
		}
		total += len(g.scenarios)
	}
	out += fmt.Sprintf("\n%-24s", "together")
	for i := range versions {
		out += fmt.Sprintf("%14s", fmt.Sprintf("%d of %d", all[i], total))
	}
	return out + "\n"
}

func comment(text string) string {
	out := ""
	for line := range strings.Lines(text) {
		out += "//\t" + strings.TrimRight(line, " \n") + "\n"
	}
	return out
}

// differences returns a table with a row for each difference of a version from judge.
func differences() string {
	where := map[[2]string][]string{} // version and reason
	for _, g := range groups {
		for _, sc := range g.scenarios {
			for version, why := range sc.differs {
				where[[2]string{version, why}] = append(where[[2]string{version, why}], sc.name)
			}
		}
	}
	var rows []string
	for key, names := range where {
		rows = append(rows, fmt.Sprintf("| %s | %s | %s |\n", key[0], key[1], strings.Join(names, ", ")))
	}
	slices.Sort(rows)
	return "| Pulsar | difference | scenarios |\n|---|---|---|\n" + strings.Join(rows, "")
}

func TestEachScenarioHasATraceOfItsOwn(t *testing.T) {
	seen, traces := map[string]bool{}, map[string]bool{}
	for _, g := range groups {
		for _, sc := range g.scenarios {
			require.False(t, seen[sc.name], sc.name)
			seen[sc.name] = true
			traces[traceFile(sc, judge)] = true
			for v := range sc.differs {
				require.Contains(t, versions, v)
				traces[traceFile(sc, v)] = true
			}
		}
	}
	files, err := os.ReadDir("testdata")
	require.NoError(t, err)
	require.Len(t, files, len(traces), "traces without a scenario, or scenarios without a trace")
}
