package attempts

import (
	"flag"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/exploretest"
)

var withMutants = flag.Bool("mutants", false, "remove each rule in turn, and see that the exploration notices it (10 minutes)")

// mutants are rules that the promises need if there are two processes. Each has the code that breaks the rule, and
// words with which the exploration then fails.
var mutants = []struct{ rule, file, with, without, says string }{
	{"a copy waits as long as the log says", "../internal/partition/arrive.go", "		if c.Wait <= 0 {", "		if true {", "before the end of a delay"},
	{"of the same count the later due time holds", "merge.go", "if a.due < b.due {", "if false {", "before the end of a delay"},
	{"a delay of another session counts for a message that was here", "arrive.go", "if r.session == l.id {", "if true {", "before the end of a delay"},
	{"the session of the later due time holds", "merge.go", "a.due, a.session, a.clock = b.due, b.session, b.clock", "a.due, a.clock = b.due, b.clock", "before the end of a delay"},
	{"a copied record is still of the session that wrote it", "state.go", "session: c.session, clock: f.session,", "session: f.session, clock: f.session,", "has no effect"},
	{"a failure elsewhere outlives a lost acknowledgement", "write.go", "if x.removed && x.from > 0 && l.state.records[p].count > x.count {", "if false {", "before the end of a delay"},
	{"a session that missed frames forgets the records that were not copied", "state.go", "		maps.DeleteFunc(s.records, func(_ place, r record) bool { return r.at.before(f.checkpoint) })\n", "", "has the record of settled message"},
	{"a hand-over is taken back", "../internal/partition/nack.go", "		g.waitUntil(now, m, add(now, wait))\n	}\n	return wait <= 0", "	}\n	return true", "before the end of a delay"},
	{"a record has the delay", "verbs.go", "due += min(delay, maxDelay).Milliseconds() + 2", "due++", "before the end of a delay"},
	{"the higher count holds", "merge.go", "	if a.isBefore(b) {", "	if b.isBefore(a) {", "which knows"},
	{"a copy has the count of the log", "../internal/partition/arrive.go", "	return max(c.Count-min(c.Count, excess), c.Tries)", "	return c.Count - min(c.Count, excess)", "which knows"},
	{"a message that was here has the count of the log", "../internal/partition/nack.go", "	m.count = max(m.count, tries)", "", "which knows"},
	{"a delivery counts once", "../internal/partition/take.go", "m.count += min(1, ^m.count)", "m.count += 2", "deliveries"},
	{"a lost session has crashed", "sessions.go", "			return r.crashes + 1\n", "			return r.crashes\n", "is handled after"},
	{"crashes outlive the next handler", "verbs.go", "		r.crashes = l.crashes(*r)\n", "", "is handled after"},
	{"a message waits until its session lives or is lost", "arrive.go", "		r.due = max(r.due, since+x.lease+1)\n", "		_, _ = x, since\n", "is handled after"},
	{"a session that is heard lives", "state.go", "now-x.heard > x.lease }", "now-x.heard > x.lease/9 }", "is dead after"},
	{"a settled message is not handed out", "../internal/partition/arrive.go", "if p.isComplete(e, at.position) {", "if false {", "which has settled it"},
	{"a stale message is not handed out from memory", "../internal/partition/connection.go", "	return m.epoch < max(p.floor, p.group.floor) && !p.isComing(m.place())\n", "	_ = p\n	return false\n", "to the other"},
	{"a passive consumer hands out nothing from memory", "../internal/partition/connection.go", "		p.floor = g.epoch\n", "", "not active"},
}

// TestMutants breaks each rule and expects the exploration to fail.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.rule, " ", "-"), func(t *testing.T) {
			mutant := exploretest.Mutant{Rule: m.rule, File: m.file, With: m.with, Without: m.without}
			mutant.Check(t)
			if !*withMutants {
				return
			}
			out := mutant.Test(t, "-timeout=300s", "-run", "TestExplorationOfTwoProcesses", ".", "-args", "-deeper=0")
			require.Contains(t, out, m.says)
			_, by, _ := strings.Cut(out, "--- FAIL: TestExplorationOfTwoProcesses/")
			by, _, _ = strings.Cut(by, " ")
			t.Logf("%s: noticed by %s: %s", m.rule, by, m.says)
		})
	}
}
