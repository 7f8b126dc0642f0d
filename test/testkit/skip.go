package testkit

import (
	"flag"
	"os"
	"testing"
)

// NeedsRealBroker skips a test of what the in-process broker does not have, unless PULSAR_URL names a real one.
func NeedsRealBroker(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("PULSAR_URL") == "" || os.Getenv("PULSAR_ADMIN_URL") == "" {
		t.Skip("the in-process broker has no " + what)
	}
}

// Long is set by -long: tests that take minutes run.
var Long = flag.Bool("long", false, "tests that take minutes run on the broker in process too")
