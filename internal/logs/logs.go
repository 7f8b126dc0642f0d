// Package logs lets an application's logger write for a library.
package logs

import (
	"context"
	"fmt"
	"log/slog"
)

// Safe returns a logger that writes to the handler of logger and does not panic if that does: much is logged by
// goroutines that no caller else could recover in. It may be used concurrently if the handler may, as slog wants it.
func Safe(logger *slog.Logger) *slog.Logger {
	if _, ok := logger.Handler().(safe); ok {
		return logger
	}
	return slog.New(safe{logger.Handler()})
}

type safe struct{ slog.Handler }

func (h safe) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	defer func() { _ = recover() }()
	return h.Handler.Enabled(ctx, level)
}

func (h safe) Handle(ctx context.Context, r slog.Record) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("logs: the handler panics: %v", v)
		}
	}()
	return h.Handler.Handle(ctx, r)
}

func (h safe) WithAttrs(attrs []slog.Attr) (with slog.Handler) {
	defer func() {
		if recover() != nil {
			with = h
		}
	}()
	return safe{h.Handler.WithAttrs(attrs)}
}

func (h safe) WithGroup(name string) (with slog.Handler) {
	defer func() {
		if recover() != nil {
			with = h
		}
	}()
	return safe{h.Handler.WithGroup(name)}
}
