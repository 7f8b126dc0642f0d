package testkit

import (
	"flag"
	"os"
	"testing"
)

// NeedsRealBroker skips a test that needs a feature which the in-process broker lacks, unless PULSAR_URL names a real
// broker.
func NeedsRealBroker(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("PULSAR_URL") == "" || os.Getenv("PULSAR_ADMIN_URL") == "" {
		t.Skip("the in-process broker has no " + what)
	}
}

// Long is set by the flag -long: slow tests run too.
var Long = flag.Bool("long", false, "tests that take long run on the broker in process too")

// TakesLong skips a test that waits for more than ten seconds, unless -long is set or PULSAR_URL names a real broker. A
// package's tests take as long as the slowest of them.
func TakesLong(t testing.TB) {
	t.Helper()
	if testing.Short() || !*Long && os.Getenv("PULSAR_URL") == "" {
		t.Skip("takes long: run it with -long, or on a real broker")
	}
}
