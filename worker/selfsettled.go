package worker

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/pulsar-redelivery/redelivery/internal/insight"
)

// selfSettled notices a handler that settles its messages itself.
type selfSettled struct {
	looked atomic.Uint64
	warned atomic.Bool
}

// All of a Worker's first messages are looked at, and then one of some, since a look costs as much as a tenth of an acknowledgement.
const firstLooks, looksEvery = 1000, 16

// warnOfSelfSettled logs, once, that the handler has settled one of its messages, which the Worker is about to settle.
func (s *slot) warnOfSelfSettled(tasks []task) {
	x := &s.Worker.selfSettled
	if x.warned.Load() {
		return
	}
	if n := x.looked.Add(1); n > firstLooks && n%looksEvery > 0 {
		return
	}
	inside := insight.Of(s.consumer)
	for _, t := range tasks {
		if inside.IsSettled(t.msg) && !t.gone && x.warned.CompareAndSwap(false, true) {
			s.logger.LogAttrs(context.Background(), slog.LevelWarn, "worker: the handler acknowledged or nacked its message itself; the Worker does that, by the "+
				"handler's result: return nil, an error, worker.Snooze or worker.Permanent instead", about(t.counted())...)
		}
	}
}
