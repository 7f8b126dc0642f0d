package logs_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/logs"
)

// broken is a handler whose methods all panic.
type broken struct{}

func (broken) Enabled(context.Context, slog.Level) bool  { panic("enabled") }
func (broken) Handle(context.Context, slog.Record) error { panic("handle") }
func (broken) WithAttrs([]slog.Attr) slog.Handler        { panic("attrs") }
func (broken) WithGroup(string) slog.Handler             { panic("group") }

// careless is a broken handler whose Enabled returns true.
type careless struct{ broken }

func (careless) Enabled(context.Context, slog.Level) bool { return true }

func TestSafe(t *testing.T) {
	for _, handler := range []slog.Handler{broken{}, careless{}} {
		l := logs.Safe(slog.New(handler))
		l.Warn("a")
		l.With("b", 1).WithGroup("c").Warn("d")
	}
	var said bytes.Buffer
	l := logs.Safe(slog.New(slog.NewTextHandler(&said, nil)))
	require.Same(t, l, logs.Safe(l))
	l.Debug("nothing")
	require.Empty(t, said.String())
	l.With("b", 1).WithGroup("c").Warn("d", "e", 2)
	require.Contains(t, said.String(), "level=WARN msg=d b=1 c.e=2")
}
