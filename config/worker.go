package config

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// Worker has a file's options of one worker. Each field is an option of package worker. A zero field is not set
// in the file: the default of package worker applies. In the file, each name begins with a small letter.
type Worker struct {
	Concurrency   int            // worker.WithConcurrency
	Timeout       time.Duration  // worker.WithTimeout
	DrainTimeout  *time.Duration // worker.WithDrainTimeout; 0 in the file means at once
	FinishBatches *bool          // worker.WithFinishBatches
	MaxAge        time.Duration  // worker.WithMaxAge
	KeyOrder      bool           // worker.WithKeyOrder
	CrashLimit    int            // worker.WithCrashLimit, which needs AttemptLog of the consumer
	BegunAfter    *time.Duration // worker.WithBegunAfter; 0 in the file means at once
	StuckLimit    time.Duration  // worker.WithStuckLimit
	CancelLost    bool           // worker.WithCancelLost
	RateLimit     float64        // worker.WithRateLimit, in messages a second
	// how many messages may start together after a quiet time; by default RateLimit, and at least 1
	RateBurst int

	// For worker.WithLocalRetries: set both or none.
	LocalRetries      int                       // the argument n
	LocalRetryBackoff backoff.RedeliveryBackoff // the argument pause; the file has the name of a policy

	// For worker.WithPauseOnFailure: set all three or none.
	PauseOnFailureWindow  int                       // the argument window
	PauseOnFailureRatio   float64                   // the argument ratio
	PauseOnFailureBackoff backoff.RedeliveryBackoff // the argument pause; the file has the name of a policy

	// A worker with any of these handles batches: NewBatchWorker makes it.
	BatchMaxMessages int           // worker.Batch's MaxMessages
	BatchMaxBytes    int64         // worker.Batch's MaxBytes
	BatchMaxWait     time.Duration // worker.Batch's MaxWait
}

var workerKeys = []string{"concurrency", "timeout", "drainTimeout", "finishBatches", "maxAge", "keyOrder", "crashLimit",
	"begunAfter", "rateLimit", "rateBurst", "localRetries",
	"localRetryBackoff", "pauseOnFailureWindow",
	"pauseOnFailureRatio", "pauseOnFailureBackoff", "batchMaxMessages", "batchMaxBytes", "batchMaxWait",
	"stuckLimit", "cancelLost"}

// NewWorker calls worker.New with the file's settings of a worker. options are applied after those of the file, and
// replace them. If the file sets a batch limit, the error satisfies errors.Is with redelivery.ErrInvalidOption: call
// NewBatchWorker.
func (c *Config) NewWorker(name string, consumer *redelivery.Consumer, handler worker.Handler,
	options ...worker.Option) (
	*worker.Worker, error) {
	found, err := c.worker(name)
	if err != nil {
		return nil, err
	}
	if found.batch() != (worker.Batch{}) {
		return nil, fmt.Errorf("%w: config: worker %q has batchMaxMessages, batchMaxBytes or batchMaxWait, want "+
			"NewBatchWorker",
			redelivery.ErrInvalidOption, name)
	}
	return worker.New(consumer, handler, append(found.options(), options...)...)
}

// NewBatchWorker calls worker.NewBatch with the file's settings of a worker. options are applied after those of the
// file, and replace them. Batch limits that the file does not set have the defaults of worker.Batch.
func (c *Config) NewBatchWorker(name string, consumer *redelivery.Consumer, handler worker.BatchHandler,
	options ...worker.Option) (
	*worker.Worker, error) {
	found, err := c.worker(name)
	if err != nil {
		return nil, err
	}
	return worker.NewBatch(consumer, handler, found.batch(), append(found.options(), options...)...)
}

func (c *Config) worker(name string) (Worker, error) {
	found, ok := c.Workers[name]
	if !ok {
		return Worker{}, fmt.Errorf("config: worker is %q, want one of the file's (%s)", name,
			namesOf(c.Workers))
	}
	return found, nil
}

// worker reads the options of a worker.
func (d *decoder) worker(n *node, policies map[string]backoff.RedeliveryBackoff) Worker {
	v := d.fields(n, workerKeys...)
	w := Worker{
		Concurrency:          int(d.whole(v["concurrency"], 1, 1_000_000)), // as worker.WithConcurrency
		Timeout:              d.duration(v["timeout"], 1),
		MaxAge:               d.duration(v["maxAge"], 1),
		KeyOrder:             d.boolean(v["keyOrder"]),
		RateLimit:            d.number(v["rateLimit"], "above 0", func(f float64) bool { return f > 0 }),
		RateBurst:            int(d.whole(v["rateBurst"], 1, math.MaxInt32)),
		LocalRetries:         int(d.whole(v["localRetries"], 1, math.MaxInt32)),
		LocalRetryBackoff:    d.reference(v["localRetryBackoff"], policies),
		CrashLimit:           int(d.whole(v["crashLimit"], 1, math.MaxInt32)),
		PauseOnFailureWindow: int(d.whole(v["pauseOnFailureWindow"], 1, math.MaxInt32)),
		PauseOnFailureRatio: d.number(v["pauseOnFailureRatio"], "above 0, and at most 1",
			func(f float64) bool { return f > 0 && f <= 1 }),
		PauseOnFailureBackoff: d.reference(v["pauseOnFailureBackoff"], policies),
		BatchMaxMessages:      int(d.whole(v["batchMaxMessages"], 1, math.MaxInt32)),
		BatchMaxBytes:         d.bytes(v["batchMaxBytes"], 1),
		BatchMaxWait:          d.duration(v["batchMaxWait"], 1),
		StuckLimit:            d.duration(v["stuckLimit"], 5*time.Second),
		CancelLost:            d.boolean(v["cancelLost"]),
	}
	if n := v["finishBatches"]; n != nil {
		finish := d.boolean(n)
		w.FinishBatches = &finish
	}
	if n := v["drainTimeout"]; n != nil {
		timeout := d.duration(n, 0)
		w.DrainTimeout = &timeout
	}
	if n := v["begunAfter"]; n != nil {
		after := d.duration(n, 0)
		w.BegunAfter = &after
	}
	d.need(v, "begunAfter", "crashLimit")
	d.need(v, "rateBurst", "rateLimit")
	d.need(v, "localRetries", "localRetryBackoff")
	d.need(v, "localRetryBackoff", "localRetries")
	const window, ratio, pause = "pauseOnFailureWindow", "pauseOnFailureRatio", "pauseOnFailureBackoff"
	d.need(v, window, pause)
	d.need(v, ratio, window)
	d.need(v, pause, ratio)
	return w
}

func (w Worker) batch() worker.Batch {
	return worker.Batch{MaxMessages: w.BatchMaxMessages, MaxBytes: w.BatchMaxBytes, MaxWait: w.BatchMaxWait}
}

func (w Worker) options() []worker.Option {
	var options []worker.Option
	if w.Concurrency != 0 {
		options = append(options, worker.WithConcurrency(w.Concurrency))
	}
	if w.Timeout != 0 {
		options = append(options, worker.WithTimeout(w.Timeout))
	}
	if w.DrainTimeout != nil {
		options = append(options, worker.WithDrainTimeout(*w.DrainTimeout))
	}
	if w.FinishBatches != nil {
		options = append(options, worker.WithFinishBatches(*w.FinishBatches))
	}
	if w.MaxAge != 0 {
		options = append(options, worker.WithMaxAge(w.MaxAge))
	}
	if w.KeyOrder {
		options = append(options, worker.WithKeyOrder())
	}
	if w.RateLimit != 0 {
		burst := cmp.Or(w.RateBurst, int(min(math.MaxInt32, max(1, w.RateLimit))))
		options = append(options, worker.WithRateLimit(rate.NewLimiter(rate.Limit(w.RateLimit), burst)))
	}
	if w.LocalRetryBackoff != nil {
		options = append(options, worker.WithLocalRetries(w.LocalRetries, w.LocalRetryBackoff))
	}
	if w.StuckLimit != 0 {
		options = append(options, worker.WithStuckLimit(w.StuckLimit))
	}
	if w.CancelLost {
		options = append(options, worker.WithCancelLost())
	}
	if w.CrashLimit != 0 {
		options = append(options, worker.WithCrashLimit(w.CrashLimit))
	}
	if w.BegunAfter != nil {
		options = append(options, worker.WithBegunAfter(*w.BegunAfter))
	}
	if w.PauseOnFailureBackoff != nil {
		options = append(options, worker.WithPauseOnFailure(w.PauseOnFailureWindow, w.PauseOnFailureRatio,
			w.PauseOnFailureBackoff))
	}
	return options
}
