package logtest_test

import (
	"log/slog"
	"testing"

	"github.com/pulsar-redelivery/redelivery/internal/logtest"
)

func TestLoggerAfterTheTestWritesNothing(t *testing.T) {
	var logger *slog.Logger
	t.Run("ended", func(t *testing.T) { logger = logtest.Logger(t) })
	logger.Warn("a late line") // testing panics if this reaches the output of a test that has ended
}
