package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/config"
	"github.com/pulsar-redelivery/redelivery/internal/policies"
)

// workerPlan has a file's options of a worker. Its JSON is in seconds and bytes, and leaves out options that the file
// does not have.
type workerPlan struct {
	Name         string   `json:"name"`
	Of           string   `json:"of"` // worker
	Concurrency  int      `json:"concurrency,omitempty"`
	Timeout      seconds  `json:"timeout,omitempty"`
	DrainTimeout *seconds `json:"drainTimeout,omitempty"`
	MaxAge       seconds  `json:"maxAge,omitempty"`
	KeyOrder     bool     `json:"keyOrder,omitempty"`
	RateLimit    float64  `json:"rateLimit,omitempty"`
	RateBurst    int      `json:"rateBurst,omitempty"`
	Local        *local   `json:"localRetries,omitempty"`
	StuckLimit   seconds  `json:"stuckLimit,omitempty"`
	CancelLost   bool     `json:"cancelLost,omitempty"`
	CrashLimit   int      `json:"crashLimit,omitempty"`
	BegunAfter   *seconds `json:"begunAfter,omitempty"`
	Batch        *batch   `json:"batch,omitempty"`
	Outage       *outage  `json:"pauseOnFailure,omitempty"`

	FinishBatches *bool `json:"finishBatches,omitempty"`
}

type batch struct {
	MaxMessages int     `json:"maxMessages,omitempty"`
	MaxBytes    int64   `json:"maxBytes,omitempty"`
	MaxWait     seconds `json:"maxWait,omitempty"`
}

type local struct {
	Retries int       `json:"retries"`
	Pauses  []seconds `json:"pauses"` // the first ones, without jitter
}

type outage struct {
	Window int       `json:"window"`
	Ratio  float64   `json:"ratio"`
	Pauses []seconds `json:"pauses"` // the first ones, without jitter
}

// ofWorkers returns the plans of a file's workers. If wanted is not "", it leaves out workers with other names.
func ofWorkers(c *config.Config, wanted string) (plans []workerPlan) {
	for _, name := range slices.Sorted(maps.Keys(c.Workers)) {
		if wanted == "" || name == wanted {
			plans = append(plans, ofWorker(name, c.Workers[name]))
		}
	}
	return plans
}

func ofWorker(name string, w config.Worker) workerPlan {
	p := workerPlan{Name: name, Of: "worker", Concurrency: w.Concurrency, Timeout: seconds(w.Timeout),
		MaxAge:   seconds(w.MaxAge),
		KeyOrder: w.KeyOrder, RateLimit: w.RateLimit, RateBurst: w.RateBurst, StuckLimit: seconds(w.StuckLimit),
		CancelLost: w.CancelLost,
		CrashLimit: w.CrashLimit, BegunAfter: (*seconds)(w.BegunAfter), DrainTimeout: (*seconds)(w.DrainTimeout),
		FinishBatches: w.FinishBatches}
	if b := (batch{w.BatchMaxMessages, w.BatchMaxBytes, seconds(w.BatchMaxWait)}); b != (batch{}) {
		p.Batch = &b
	}
	if w.PauseOnFailureBackoff != nil {
		p.Outage = &outage{w.PauseOnFailureWindow, w.PauseOnFailureRatio, pausesOf(w.PauseOnFailureBackoff, 4)}
	}
	if w.LocalRetryBackoff != nil {
		p.Local = &local{w.LocalRetries, pausesOf(w.LocalRetryBackoff, min(4, w.LocalRetries))}
	}
	return p
}

// pausesOf returns the first n delays of a policy.
func pausesOf(policy backoff.RedeliveryBackoff, n int) (pauses []seconds) {
	for n := range uint32(n) {
		shortest, longest := policies.Bounds(policy, n)
		pauses = append(pauses, seconds(shortest+(longest-shortest)/2))
	}
	return pauses
}

func list(pauses []seconds) string {
	var all []string
	for _, d := range pauses {
		all = append(all, formatDelay(d))
	}
	return strings.Join(all, ", ")
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func (p workerPlan) write(b *strings.Builder) {
	row := func(about, format string, args ...any) {
		fmt.Fprintf(b, "  %-15s %s\n", about, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(b, "%s: worker\n", shorten(p.Name))
	what := "messages"
	if p.Batch != nil {
		what = "batches"
	}
	if p.Concurrency > 0 {
		row("at a time", "%d %s", p.Concurrency, what)
	} else {
		row("at a time", "as many %s as processors (GOMAXPROCS)", what)
	}
	if p.Batch != nil {
		row("a batch", "ends after %d messages or %d bytes or %s", cmp.Or(p.Batch.MaxMessages, 100),
			cmp.Or(p.Batch.MaxBytes, 1<<20),
			formatDelay(cmp.Or(p.Batch.MaxWait, seconds(100*time.Millisecond))))
	}
	if p.Timeout > 0 {
		row("a handler", "has %s; its ack timeout is renewed until then", formatDelay(p.Timeout))
	} else {
		row("a handler", "has as long as the ack timeout")
	}
	if p.StuckLimit > 0 {
		row("", "loses its place %s after that if it does not return", formatDelay(p.StuckLimit))
	}
	if p.CancelLost {
		row("", "its context ends when another consumer may have its message")
	}
	if p.CrashLimit > 0 {
		row("a message", "is a dead letter when it has crashed its consumer %s", times(p.CrashLimit))
	}
	if p.RateLimit > 0 {
		row("at most", "%.6g messages a second", p.RateLimit)
	}
	if l := p.Local; l != nil {
		more := ""
		if l.Retries > len(l.Pauses) {
			more = " ..."
		}
		row("a failure", "counts when %d more calls fail too, after pauses of %s%s", l.Retries, list(l.Pauses), more)
	}
	drain := seconds(30 * time.Second)
	if p.DrainTimeout != nil {
		drain = *p.DrainTimeout
	}
	if drain == 0 {
		row("a drain", "ends the contexts of handlers at once")
	} else {
		row("a drain", "ends the contexts of handlers after %s", formatDelay(drain))
	}
	if p.FinishBatches != nil && !*p.FinishBatches {
		row("", "does not finish producers' batches that were begun")
	}
	if p.MaxAge > 0 {
		row("a failure", "is a dead letter if the message is older than %s", formatDelay(p.MaxAge))
	}
	if p.KeyOrder {
		row("a key", "is handled in order, over retries")
	}
	if o := p.Outage; o != nil {
		row("an outage", "begins after failures in a row: %.4g%% of %d messages", 100*o.Ratio, o.Window)
		row("", "one message is tried after %s ...", list(o.Pauses))
	}
}
