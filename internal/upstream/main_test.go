package upstream_test

import (
	"testing"

	"github.com/pulsar-redelivery/redelivery/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
