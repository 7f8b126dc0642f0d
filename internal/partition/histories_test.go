package partition

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// histories were found by explorations that were deeper than those of every day.
var histories = []struct{ name, world, steps string }{
	{"a batch whose copies were dropped twice is acknowledged whole", "shared with index acks at the client",
		"send lose send receive receive lose pass send receive receive receive ack"},
	{"a copy that is dropped for a newer one does not end a gap", "failover",
		"deactivate activateLate receive send receive flush send send lose send receive receive"},
	{"a gap outlives a lost connection", "exclusive with a queue that is cleared",
		"lose swallow send receive lose swallow send flush send receive"},
	{"a dropped copy leaves a gap though the broker sent its message again", "failover with a queue that is cleared",
		"deactivate activate receive receive pass lose swallow send flush send receive"},
	{"a message whose transaction is aborted is not stuck in a gap", "exclusive with transactions and a queue that is cleared",
		"send receive send receive receive lose late ack:A0.0 pass beginTxn:A1.0"},
}

func TestHistories(t *testing.T) {
	for _, h := range histories {
		t.Run(h.name, func(t *testing.T) {
			var w *world
			for _, k := range kinds() {
				if k.name == h.world {
					w = newWorld(k)
				}
			}
			for name := range strings.FieldsSeq(h.steps) {
				w.do(stepOf(t, name))
				w.check()
			}
			w.complete()
			require.Empty(t, w.fault)
		})
	}
}

// stepOf returns the step with a name such as ack:A1.0; without a place it is about A0.0.
func stepOf(t *testing.T, name string) (s step) {
	name, at, placed := strings.Cut(name, ":")
	for e, known := range eventNames {
		if known == name {
			s.event = event(e)
		}
	}
	require.Equal(t, name, eventNames[s.event])
	if placed {
		_, err := fmt.Sscanf(at[1:], "%d.%d", &s.entry, &s.index)
		require.NoError(t, err)
		s.topic = at[0] - 'A'
	}
	return s
}
