package owners

import (
	"os"
	"testing"

	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// takesMinutes skips a test that waits for minutes of real time, unless it is asked for or PULSAR_URL names a real
// broker.
func takesMinutes(t testing.TB) {
	t.Helper()
	if testing.Short() || !*testkit.Long && os.Getenv("PULSAR_URL") == "" {
		t.Skip("takes minutes: run it with -long, or on a real broker")
	}
}
