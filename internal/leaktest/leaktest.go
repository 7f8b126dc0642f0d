// Package leaktest looks for goroutines that tests leave behind, except those that pulsar-client-go leaves.
package leaktest

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
)

const client = "github.com/apache/pulsar-client-go/pulsar"

// Unsubscribed are the functions of the goroutines that a consumer leaves after Unsubscribe: its Close then does
// nothing.
var Unsubscribed = []string{".(*partitionConsumer).runEventsLoop", ".(*partitionConsumer).dispatcher",
	".newAckGroupingTracker.func1"}

// Main runs the tests, and ends the process.
func Main(m *testing.M) {
	options := ignored(nil)
	goleak.VerifyTestMain(waiting{logtest.Quiet{M: m}, options}, options...)
}

// waiting runs tests, and waits for the goroutines that they leave.
type waiting struct {
	goleak.TestingM
	options []goleak.Option
}

// Run runs the tests and returns the exit code.
func (w waiting) Run() int {
	code := w.TestingM.Run()
	if code == 0 {
		await(w.options)
	}
	return code
}

// await waits until no goroutines are left. goleak itself waits for half a second, but a goroutine may wait for the
// broker's answer for as long as an OperationTimeout.
func await(options []goleak.Option) {
	for end := time.Now().Add(waittest.Limit); goleak.Find(options...) != nil && time.Now().Before(end); {
		continue
	}
}

// Check fails t if t leaves goroutines that began after this call, except those of the functions in allowed. Call it at
// the beginning of t.
func Check(t testing.TB, allowed []string) {
	options := append(ignored(allowed), goleak.IgnoreCurrent())
	t.Cleanup(func() {
		await(options)
		goleak.VerifyNone(t, options...)
	})
}

// ignored returns options that ignore the goroutines of pulsar-client-go, and those of the functions in allowed.
func ignored(allowed []string) (options []goleak.Option) {
	for _, function := range append([]string{
		// Closed producers still wait for the next timeout of a message.
		".(*partitionProducer).failTimeoutMessages",
		// Producers of a terminated topic stay for good.
		".(*partitionProducer).reconnectToBroker",
		".(*partitionProducer).runEventsLoop.func1",
		// Consumers wait for a minute after each chunk.
		".(*chunkedMsgCtxMap).discardChunkIfExpire",
		// These calls wait for good if their consumer is closed at the same moment.
		".(*partitionConsumer).getLastMessageIDAndMarkDeletePosition.func1",
		".(*partitionConsumer).AckIDList", ".ackIDListFromMultiTopics",
		// A connection that is requested while the client closes is opened, and never closed.
		"/internal.(*connection).run",
		"/internal.(*connection).runPingCheck",
		"/internal.(*connectionReader).readFromConnection",
	}, allowed...) {
		options = append(options, goleak.IgnoreAnyFunction(client+function))
	}
	return options
}
