package attempts

import (
	"flag"
	"testing"

	"github.com/pulsar-redelivery/redelivery/internal/leaktest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // most tests wait most of the time
	leaktest.Main(m)
}
