// Package logs makes an application's logger safe for a library to use.
package logs

import (
	"context"
	"fmt"
	"log/slog"
)

// Safe returns a logger that writes to the handler of logger, and does not panic if the handler does: the library logs
// in goroutines of its own, in which no caller could recover. It is safe for concurrent use if the handler is, as slog
// requires.
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
