package worker

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/apache/pulsar-client-go/pulsar"
)

// selfSettled notices a handler that settles its messages itself.
type selfSettled struct {
	warned atomic.Bool
	loss   <-chan struct{} // closed by the first loss since New
}

// warnOfSelfSettled logs, once, that the handler has settled one of tasks, which the Worker is about to settle. end
// calls it only for samples, since it costs up to a tenth of an acknowledgement.
func (s *slot) warnOfSelfSettled(tasks []task) {
	x := &s.Worker.selfSettled
	if x.warned.Load() {
		return
	}
	for _, t := range tasks {
		if !t.gone && s.isSelfSettled(t.msg) && x.warned.CompareAndSwap(false, true) {
			s.logger.LogAttrs(context.Background(), slog.LevelWarn,
				"worker: the handler acknowledged or nacked its message itself; the Worker does that, by the "+
					"handler's result: return nil, an error, worker.Snooze or worker.Permanent instead",
				about(t.counted())...)
		}
	}
}

// isSelfSettled reports whether the handler has settled or nacked a message. It cannot tell a nack from an ack timeout
// or a loss, since the message waits after each of them. So it reports a nack only if there is no ack timeout and has
// been no loss.
func (w *Worker) isSelfSettled(msg pulsar.Message) bool {
	d, err := w.consumer.Delivery(msg)
	if err != nil || !d.Waiting {
		return err == nil && d.Settled
	}
	select {
	case <-w.selfSettled.loss:
		return false
	default:
		return w.consumer.Options().AckTimeout == 0
	}
}
