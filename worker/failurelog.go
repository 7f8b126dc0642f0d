package worker

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/pulsar-redelivery/redelivery/internal/causes"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

// maxText is how many bytes of the text of a handler's error are logged.
const maxText = 1024

// logFailures logs the errors of messages that failed. logPanic has handled panics already.
func (s *slot) logFailures(tasks []task, outcomes []outcome) {
	for i, o := range outcomes {
		if o.err != nil && o.verb != snooze && o.because != publishing.Crashed && !o.panicked {
			s.logFailure(tasks[i], o.err)
		}
	}
}

func (w *Worker) logFailure(t task, err error) {
	kind, attr := w.describe(err)
	first := w.repeats.first("failed: "+kind, func(more int) {
		w.logger.Warn("worker: more failures like that", append(w.who(), "failures", more, attr)...)
	})
	if !first {
		return
	}
	attempt := uint64(t.count()) + 1
	w.logger.Warn("worker: message failed",
		append(w.who(), "topic", t.msg.Topic(), "message", t.msg.ID().String(), "attempt", attempt, attr)...)
}

// describe returns the kind of an error, and the attribute that logs its text. If dead letters omit the text, both have
// only the error's type.
func (w *Worker) describe(err error) (kind string, attr slog.Attr) {
	kind = publishing.TypeName(err)
	if w.consumer.Options().OmitCause {
		return kind, slog.String("error_type", kind)
	}
	text := fmt.Sprintf("%v", err) // safe even if the method Error panics
	text = strings.ToValidUTF8(text[:min(len(text), maxText)], "")
	return kind + ": " + causes.Mask(text), slog.String("error", text)
}

// logLeft logs that a message is left to the broker. err is the handler's, or why the message could not be settled, or
// nil.
func (r *run) logLeft(t task, why string, err error) {
	because := slog.String("because", why)
	first := r.repeats.first("left: "+why, func(more int) {
		r.logger.Warn("worker: more messages are left to the broker", append(r.who(), "messages", more, because)...)
	})
	if !first {
		return
	}
	attrs := append(about(t.counted()), because)
	if err != nil {
		_, attr := r.describe(err)
		attrs = append(attrs, attr)
	}
	r.logger.LogAttrs(r.lasting, slog.LevelWarn, "worker: a message is left to the broker", attrs...)
}

// unsettled reports that a message could not be settled.
func (r *run) unsettled(t task, what string, err error) {
	r.counts.unsettled.Add(1)
	kind, _ := r.describe(err)
	attr := slog.Any("error", err)
	first := r.repeats.first(what+": "+kind, func(more int) {
		r.logger.Warn("worker: "+what+" failed for more messages", append(r.who(), "messages", more, attr)...)
	})
	if first {
		r.logger.LogAttrs(r.lasting, slog.LevelWarn, "worker: "+what+" failed", append(about(t.counted()), attr)...)
	}
}
