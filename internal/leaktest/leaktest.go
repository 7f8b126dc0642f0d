// Package leaktest looks for goroutines that the tests of a package left, other than those that pulsar-client-go
// leaves.
package leaktest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/pulsar-redelivery/redelivery/internal/logtest"
)

const client = "github.com/apache/pulsar-client-go/pulsar"

// Unsubscribed are the functions of the goroutines that a consumer leaves after Unsubscribe, whose Close does nothing.
var Unsubscribed = []string{".(*partitionConsumer).runEventsLoop", ".(*partitionConsumer).dispatcher",
	".newAckGroupingTracker.func1"}

// Main runs the tests, and ends the process.
func Main(m *testing.M) { goleak.VerifyTestMain(logtest.Quiet{M: m}, ignored(nil)...) }

// Check is for one test: it fails t if t leaves goroutines that began after this call, other than those of functions
// also. Call it before anything of t begins.
func Check(t testing.TB, also []string) {
	options := append(ignored(also), goleak.IgnoreCurrent())
	t.Cleanup(func() { goleak.VerifyNone(t, options...) })
}

// ignored are the goroutines that pulsar-client-go leaves, and those of functions also.
func ignored(also []string) (options []goleak.Option) {
	for _, function := range append([]string{
		// Producers look for messages that timed out until the next time-out after they were closed.
		".(*partitionProducer).failTimeoutMessages",
		// Those of a terminated topic stay for good.
		".(*partitionProducer).reconnectToBroker",
		".(*partitionProducer).runEventsLoop.func1",
		// Consumers wait for a minute after each chunk.
		".(*chunkedMsgCtxMap).discardChunkIfExpire",
		// A connection that is requested while the client is closed is made, and never closed.
		"/internal.(*connection).run",
		"/internal.(*connection).runPingCheck",
		"/internal.(*connectionReader).readFromConnection",
	}, also...) {
		options = append(options, goleak.IgnoreAnyFunction(client+function))
	}
	return options
}
