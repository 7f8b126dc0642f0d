package worker_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
)

// panicking is a handler of logs that panics.
type panicking struct{}

func (panicking) Enabled(context.Context, slog.Level) bool  { return true }
func (panicking) Handle(context.Context, slog.Record) error { panic("of the logger") }
func (p panicking) WithAttrs([]slog.Attr) slog.Handler      { return p }
func (p panicking) WithGroup(string) slog.Handler           { return p }

// A logger that panics ends neither the process nor a goroutine.
func TestLoggerPanics(t *testing.T) {
	logger := slog.New(panicking{})
	virtually(t, withDeadLetters(2), func(t *rig) {
		t.logger = logger
		_, stop := t.start(func(context.Context, pulsar.Message) error { panic("of the handler") })
		t.publish("a", "b")
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Len(t, t.letters(), 2)
	}, redelivery.WithNackRedeliveryDelay(time.Second))
}
