package partition

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/exploretest"
)

// Each of the histories broke a promise once. Explorations that were deeper than those of the tests found them.
var histories = []struct{ name, world, steps string }{
	{"a batch whose copies were dropped twice is acknowledged whole", "shared with index acks at the client",
		"send A0.0, lose A0.0, send A0.0, receive A0.0, receive A0.0, lose A0.0, pass A0.0, send A0.0, receive A0.0, receive A0.0, receive A0.0, ack A0.0"},
	{"a copy that is dropped for a newer one does not end a gap", "failover",
		"deactivate A0.0, activateLate A0.0, receive A0.0, send A0.0, receive A0.0, flush A0.0, send A0.0, send A0.0, lose A0.0, send A0.0, receive A0.0, receive A0.0"},
	{"a gap outlives a lost connection", "exclusive with a queue that is cleared",
		"lose A0.0, swallow A0.0, send A0.0, receive A0.0, lose A0.0, swallow A0.0, send A0.0, flush A0.0, send A0.0, receive A0.0"},
	{"a dropped copy leaves a gap though the broker sent its message again", "failover with a queue that is cleared",
		"deactivate A0.0, activate A0.0, receive A0.0, receive A0.0, pass A0.0, lose A0.0, swallow A0.0, send A0.0, flush A0.0, send A0.0, receive A0.0"},
	{"a message whose transaction is aborted is not stuck in a gap", "exclusive with transactions and a queue that is cleared",
		"send A0.0, receive A0.0, send A0.0, receive A0.0, receive A0.0, lose A0.0, late A0.0, ack A0.0, pass A0.0, beginTxn A1.0"},
	{"a copy that was sent before activation and dropped is not overtaken", "failover with a queue that is cleared",
		"deactivate A0.0, activate A0.0, lose A0.0, deactivate A0.0, activateLate A0.0, receive A0.0, receive A0.0, pass A0.0, send A0.0"},
	{"a transaction that is aborted while another acknowledgement fails loses nothing", "exclusive with transactions, responses and a queue that is cleared",
		"send A0.0, receive A0.0, beginTxn A0.0, abort A0.0, begin A0.0, loseAll A0.0, send A0.0, receive A0.0"},
	{"a nack during a publication that fails later is not early", "exclusive with dead letters that are published",
		"send A0.0, receive A0.0, begin A0.0, pass A0.0, nack A0.0, endFailed A0.0"},
	{"a message in chunks that was dropped after a request for an earlier delivery is requested", "shared with chunks and a queue that is cleared",
		"send A0.0, receive A0.0, lose A0.0, nack A0.0, pass A0.0, flush A0.0, swallow A0.0"},
}

func TestHistories(t *testing.T) {
	for _, h := range histories {
		t.Run(h.name, func(t *testing.T) {
			i := slices.IndexFunc(kinds(), func(k *kind) bool { return k.name == h.world })
			require.Empty(t, exploretest.Replay(worldOf(kinds()[i]), nil, h.steps))
		})
	}
}
