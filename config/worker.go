package config

import (
	"fmt"
	"math"
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// Worker is what a file says about one worker. A zero field is not set in the file: the default of package worker holds. In the
// file, each name begins with a small letter.
type Worker struct {
	Concurrency  int            // worker.WithConcurrency
	Timeout      time.Duration  // worker.WithTimeout
	DrainTimeout *time.Duration // worker.WithDrainTimeout; 0 in the file means at once
	MaxAge       time.Duration  // worker.WithMaxAge
	KeyOrder     bool           // worker.WithKeyOrder
	MemoryLimit  int64          // worker.WithMemoryLimit, which needs KeyOrder

	// For worker.WithPauseOnFailure: set all three or none.
	PauseOnFailureWindow  int                       // its window
	PauseOnFailureRatio   float64                   // its ratio
	PauseOnFailureBackoff backoff.RedeliveryBackoff // its pause; the file has the name of a policy

	// For worker.NewBatch.
	BatchMaxMessages int           // worker.Batch's MaxMessages
	BatchMaxBytes    int64         // worker.Batch's MaxBytes
	BatchMaxWait     time.Duration // worker.Batch's MaxWait
}

var workerKeys = []string{"concurrency", "timeout", "drainTimeout", "maxAge", "keyOrder", "memoryLimit", "pauseOnFailureWindow",
	"pauseOnFailureRatio", "pauseOnFailureBackoff", "batchMaxMessages", "batchMaxBytes", "batchMaxWait"}

// WorkerOptions returns what the file says about a worker, as options for worker.New and worker.NewBatch. It returns an error if
// the file does not name the worker.
func (c *Config) WorkerOptions(name string) ([]worker.Option, error) {
	found, err := c.worker(name)
	if err != nil {
		return nil, err
	}
	return found.options(), nil
}

// Batch returns what the file says about the batches of a worker, for worker.NewBatch. It returns an error if the file does not
// name the worker.
func (c *Config) Batch(name string) (worker.Batch, error) {
	found, err := c.worker(name)
	return worker.Batch{MaxMessages: found.BatchMaxMessages, MaxBytes: found.BatchMaxBytes, MaxWait: found.BatchMaxWait}, err
}

func (c *Config) worker(name string) (Worker, error) {
	found, ok := c.Workers[name]
	if !ok {
		return Worker{}, fmt.Errorf("config: worker is %q, want one of the file's (%s)", name,
			namesOf(c.Workers))
	}
	return found, nil
}

// worker reads what is said about a worker.
func (d *decoder) worker(n *node, policies map[string]backoff.RedeliveryBackoff) Worker {
	v := d.fields(n, workerKeys...)
	w := Worker{
		Concurrency:           int(d.whole(v["concurrency"], 1, math.MaxInt32)),
		Timeout:               d.duration(v["timeout"], 1),
		MaxAge:                d.duration(v["maxAge"], 1),
		KeyOrder:              d.boolean(v["keyOrder"]),
		MemoryLimit:           d.whole(v["memoryLimit"], 1, math.MaxInt64),
		PauseOnFailureWindow:  int(d.whole(v["pauseOnFailureWindow"], 1, math.MaxInt32)),
		PauseOnFailureRatio:   d.number(v["pauseOnFailureRatio"], "above 0, and at most 1", func(f float64) bool { return f > 0 && f <= 1 }),
		PauseOnFailureBackoff: d.reference(v["pauseOnFailureBackoff"], policies),
		BatchMaxMessages:      int(d.whole(v["batchMaxMessages"], 1, math.MaxInt32)),
		BatchMaxBytes:         d.whole(v["batchMaxBytes"], 1, math.MaxInt64),
		BatchMaxWait:          d.duration(v["batchMaxWait"], 1),
	}
	if n := v["drainTimeout"]; n != nil {
		timeout := d.duration(n, 0)
		w.DrainTimeout = &timeout
	}
	if n := v["memoryLimit"]; n != nil && !w.KeyOrder {
		d.fail(n, "keyOrder: true too")
	}
	const window, ratio, pause = "pauseOnFailureWindow", "pauseOnFailureRatio", "pauseOnFailureBackoff"
	d.need(v[window], v[pause], pause)
	d.need(v[ratio], v[window], window)
	d.need(v[pause], v[ratio], ratio)
	return w
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
	if w.MaxAge != 0 {
		options = append(options, worker.WithMaxAge(w.MaxAge))
	}
	if w.KeyOrder {
		options = append(options, worker.WithKeyOrder())
	}
	if w.MemoryLimit != 0 {
		options = append(options, worker.WithMemoryLimit(w.MemoryLimit))
	}
	if w.PauseOnFailureBackoff != nil {
		options = append(options, worker.WithPauseOnFailure(w.PauseOnFailureWindow, w.PauseOnFailureRatio, w.PauseOnFailureBackoff))
	}
	return options
}
