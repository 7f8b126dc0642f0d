package attempts

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/exploretest"
)

// Each of the histories broke a promise once. Explorations found them. A step is "event process: entry.index".
var histories = []struct{ name, world, steps string }{
	{"a delay holds in a session that has copied its record", "crashes and a tidied log",
		"lease 0: 0.0, nack 0: 0.0, tidy 1: 0.0"},
	{"a delay holds though an acknowledgement was lost before", "lost acks",
		"pass 0: 0.0, nack 1: 0.0, pass 0: 0.0, crash 1: 0.0, start 1: 0.0, send 1: 0.0"},
	{"a session that missed a removal does not bring the record back", "tidied while the log is away",
		"tidy 0: 0.0, pass 0: 0.0"},
}

func TestHistories(t *testing.T) {
	for _, h := range histories {
		t.Run(h.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := slices.IndexFunc(kinds(), func(k *kind) bool { return k.name == h.world })
				k := kinds()[i]
				require.Empty(t, exploretest.Replay(worldOf(k), k.prefix, h.steps))
			})
		})
	}
}
