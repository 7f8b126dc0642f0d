package worker

import (
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"golang.org/x/time/rate"

	"github.com/pulsar-redelivery/redelivery/backoff"
)

type settings struct {
	// the fields up to limiter are adjacent since they are read for each message
	observers     observers
	timeout       time.Duration // 0 for none
	cancelLost    bool
	finishBatches bool
	limiter       *rate.Limiter // nil for none
	concurrency   int
	drainTimeout  time.Duration
	stuckLimit    time.Duration
	maxAge        time.Duration // 0 for none
	keyOrder      bool
	crashLimit    int // 0 for none
	begunAfter    time.Duration
	window        int // of WithPauseOnFailure; 0 for none
	ratio         float64
	pause         backoff.RedeliveryBackoff
	localRetries  int
	localPause    backoff.RedeliveryBackoff
	middleware    []Middleware
	classify      func(error) error                                     // nil for none
	policy        func(pulsar.Message, error) backoff.RedeliveryBackoff // nil for the Consumer's
	logger        *slog.Logger
}

const (
	defaultDrainTimeout = 30 * time.Second
	defaultStuckLimit   = 30 * time.Second
	defaultBegunAfter   = 50 * time.Millisecond
)

func newSettings(options []Option) (settings, error) {
	s := settings{concurrency: runtime.GOMAXPROCS(0), drainTimeout: defaultDrainTimeout, finishBatches: true,
		stuckLimit: defaultStuckLimit, begunAfter: defaultBegunAfter,
		logger: slog.Default()}
	for i, option := range options {
		if option == nil {
			return s, invalid(fmt.Sprintf("option %d", i+1), "nil", "an Option")
		}
		if err := option(&s); err != nil {
			return s, err
		}
	}
	return s, nil
}

// Options are the effective options of a Worker, its defaults included.
type Options struct {
	Concurrency    int           // messages, or batches, that are handled at the same time
	Timeout        time.Duration // of a handler; 0 for none
	DrainTimeout   time.Duration // 0 ends handlers at once
	PauseOnFailure bool          // WithPauseOnFailure is given
}

// Options returns the effective options of the Worker. It may be called concurrently.
func (w *Worker) Options() Options {
	return Options{Concurrency: w.concurrency, Timeout: w.timeout, DrainTimeout: w.drainTimeout,
		PauseOnFailure: w.window > 0}
}
