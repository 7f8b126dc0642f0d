package testkit

import (
	"flag"
	"os"
	"testing"

	"github.com/pulsar-redelivery/redelivery/internal/leaktest"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/internal/race"
)

// Main runs the tests of a package, many at a time, reports goroutines that they leave running, and ends the process.
func Main(m *testing.M) {
	parallel := "48" // tests against a broker mostly wait
	if race.Enabled {
		parallel = "12" // with the race detector they take ten times as long
	}
	_ = flag.Set("test.parallel", parallel)
	if os.Getenv(leaking) != "" {
		os.Exit(logtest.Quiet{M: m}.Run())
	}
	leaktest.Main(m)
}
