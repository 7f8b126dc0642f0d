// Package leaktest looks for goroutines that the tests of a package left, other than those that pulsar-client-go
// leaves.
package leaktest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/pulsar-redelivery/redelivery/internal/logtest"
)

const client = "github.com/apache/pulsar-client-go/pulsar"

// Main runs the tests, and ends the process.
func Main(m *testing.M) {
	var ignored []goleak.Option
	for _, function := range []string{
		// Producers look for messages that timed out until the next time-out after they were closed.
		".(*partitionProducer).failTimeoutMessages",
		// Those of a terminated topic stay for good.
		".(*partitionProducer).reconnectToBroker",
		".(*partitionProducer).runEventsLoop.func1",
		// Consumers wait for a minute after each chunk.
		".(*chunkedMsgCtxMap).discardChunkIfExpire",
		// A connection that somebody asks for while the client is closed is made, and never closed.
		"/internal.(*connection).run",
		"/internal.(*connection).runPingCheck",
		"/internal.(*connectionReader).readFromConnection",
	} {
		ignored = append(ignored, goleak.IgnoreAnyFunction(client+function))
	}
	goleak.VerifyTestMain(logtest.Quiet{M: m}, ignored...)
}
