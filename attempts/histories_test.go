package attempts

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// histories are faults that explorations have found. A step is "event process: entry.index"; 0: 0.0 is left out.
var histories = []struct{ name, world, steps string }{
	{"a delay holds in a session that has copied its record", "crashes and a tidied log",
		"lease, nack, tidy 1: 0.0"},
	{"a delay holds though an acknowledgement was lost before", "lost acks",
		"pass, nack 1: 0.0, pass, crash 1: 0.0, start 1: 0.0, send 1: 0.0"},
	{"a session that missed a removal does not bring the record back", "tidied while the log is away",
		"tidy, pass"},
}

func TestHistories(t *testing.T) {
	for _, h := range histories {
		t.Run(h.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w *world
				for _, k := range kinds() {
					if k.name == h.world {
						w = newWorld(k)
					}
				}
				for _, s := range w.prefix {
					w.do(s)
				}
				for name := range strings.SplitSeq(h.steps, ", ") {
					w.do(stepOf(t, w, name))
					require.Empty(t, w.fault)
				}
				w.complete()
				require.Empty(t, w.fault)
			})
		})
	}
}

// stepOf returns the possible step with the given name.
func stepOf(t *testing.T, w *world, name string) step {
	for _, s := range w.steps() {
		if s.String() == name || s.String() == name+" 0: 0.0" {
			return s
		}
	}
	require.Fail(t, "the step is not possible: "+name)
	return step{}
}
