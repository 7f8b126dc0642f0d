package owners

import (
	"testing"

	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
