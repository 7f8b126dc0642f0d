package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReportReturnsTestsThatFailOnlyWrapped(t *testing.T) {
	in := broker{name: inProcess}
	results := map[key]result{}
	for name, r := range map[string][2]result{
		"TestPasses":                 {{passed: 1, runs: 1}, {passed: 1, runs: 1}},
		"TestBreaks":                 {{passed: 3, runs: 3}, {passed: 1, runs: 3, failure: "a_test.go:1"}},
		"TestMostly":                 {{passed: 3, runs: 3}, {passed: 2, runs: 3, failure: "a_test.go:4"}},
		"TestQuick":                  {{}, {passed: 1, runs: 1}},
		"TestFailsAnyway":            {{runs: 1, failure: "a_test.go:2"}, {runs: 1, failure: "a_test.go:2"}},
		"TestKeys":                   {{passed: 1, runs: 4}, {passed: 1, runs: 2}},
		"TestZeroQueueConsumer_Chan": {{passed: 3, runs: 3}, {runs: 3, failure: "a_test.go:3"}},
	} {
		results[key{name, in.name, false}], results[key{name, in.name, true}] = r[0], r[1]
	}
	tests := []test{{"TestBreaks", "", false}, {"TestFailsAnyway", "", false}, {"TestKeys", "", true},
		{"TestLeft", "because", false}, {"TestMostly", "", false},
		{"TestPasses", "", false}, {"TestQuick", "", false}, {"TestZeroQueueConsumer_Chan", "", false}}
	var out strings.Builder
	require.Equal(t, []string{"TestBreaks"}, report(&out, "v1", tests, []broker{in}, results, false))
	for _, line := range []string{
		"| TestBreaks | pass | 1 of 3 | pulsartest, wrapped: a_test.go:1 |",
		"| TestMostly | pass | 2 of 3 | pulsartest, wrapped, sometimes: a_test.go:4 |",
		"| TestFailsAnyway | fail | fail | pulsartest, plain: a_test.go:2 |",
		"| TestKeys | 1 of 4 | 1 of 2 |  |",
		"| TestLeft |  |  | left out: because |",
		"8 tests, 1 of them left out.",
		"On pulsartest 6 pass plain, and 4 of these wrapped.",
	} {
		require.Contains(t, out.String(), line)
	}
}
