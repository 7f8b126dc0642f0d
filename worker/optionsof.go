package worker

import "time"

// Options are the effective options of a Worker, its defaults included.
type Options struct {
	Concurrency    int           // messages, or batches, that are handled at the same time
	Timeout        time.Duration // of a handler; 0 for none
	DrainTimeout   time.Duration // 0 ends handlers at once
	PauseOnFailure bool          // WithPauseOnFailure is given
}

// Options returns the effective options of the Worker. It may be called concurrently.
func (w *Worker) Options() Options {
	return Options{Concurrency: w.concurrency, Timeout: w.timeout, DrainTimeout: w.drainTimeout, PauseOnFailure: w.window > 0}
}
