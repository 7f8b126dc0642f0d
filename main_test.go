package redelivery_test

import (
	"os"
	"testing"

	"github.com/pulsar-redelivery/redelivery/internal/logtest"
)

func TestMain(m *testing.M) { os.Exit(logtest.Quiet{M: m}.Run()) }
