package testkit

import (
	"flag"
	"os"
	"testing"
)

// HasRealBroker reports whether PULSAR_URL and PULSAR_ADMIN_URL name a real broker, which NewBroker uses.
func HasRealBroker() bool {
	return os.Getenv("PULSAR_URL") != "" && os.Getenv("PULSAR_ADMIN_URL") != ""
}

// NeedsRealBroker skips a test that needs a feature, unless HasRealBroker returns true. The broker in process lacks
// that feature.
func NeedsRealBroker(t testing.TB, what string) {
	t.Helper()
	if !HasRealBroker() {
		t.Skip("the in-process broker has no " + what)
	}
}

// Long is set by the flag -long: slow tests run too.
var Long = flag.Bool("long", false, "run slow tests on the broker in process, too")

// TakesLong skips a test that waits for more than ten seconds, since a package's tests take as long as the slowest of
// them. With -long, and on a real broker, it runs the test, unless -short is set.
func TakesLong(t testing.TB) {
	t.Helper()
	if testing.Short() || !*Long && !HasRealBroker() {
		t.Skip("takes long: run it with -long, or on a real broker")
	}
}
