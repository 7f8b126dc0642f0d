package worker_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/metrics"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// randomWide has the settings that only wide runs draw.
type randomWide struct {
	Wide             bool
	Ends             string // how one of the Workers loses its Consumer; another Worker joins after that
	Hang             int    // how many calls of handlers hang for hangTime
	Crash            int
	MaxAge           time.Duration
	PauseFor, DueNow bool
	NoFinish         bool
	Group            pulsar.AckGroupingOptions
}

const (
	consumerCloses = "its Consumer is closed"
	clientCloses   = "its client is closed"
)

// hangTime is longer than the sum of a handler's timeout, the time until it counts as stuck, and WithStuckLimit.
const (
	hangTime   = 12 * time.Second
	hangLimit  = time.Second // of the handlers' timeout
	stuckLimit = 5 * time.Second
)

// widen draws the settings of a wide run.
func (c *randomConfig) widen() {
	rng := rand.New(rand.NewPCG(c.Seed, 3))
	c.randomWide = randomWide{
		Wide: true, Ends: sometimes(rng, 25, consumerCloses, clientCloses), Hang: sometimes(rng, 12, 1, 2),
		Crash: sometimes(rng, 25, 3), MaxAge: sometimes(rng, 15, ms(300), ms(1500)), PauseFor: sometimes(rng, 40, true),
		DueNow: sometimes(rng, 30, true), NoFinish: sometimes(rng, 30, true),
		Group: oneOf(rng, pulsar.AckGroupingOptions{MaxSize: 1000, MaxTime: 100 * time.Millisecond},
			pulsar.AckGroupingOptions{MaxSize: 1, MaxTime: time.Millisecond}, pulsar.AckGroupingOptions{MaxSize: 10, MaxTime: 20 * time.Millisecond},
			pulsar.AckGroupingOptions{MaxSize: 100, MaxTime: time.Second}),
	}
	if rng.IntN(4) == 0 {
		c.Timeout = ms(60) // shorter than some handlers take
	}
	if c.Hang > 0 {
		c.Hang = min(c.Hang, c.Concurrency)
		c.Timeout = sometimes(rng, 50, hangLimit)
	}
	c.Log = c.Log || c.Crash > 0
}

func (c *randomConfig) wideConsumer(o *pulsar.ConsumerOptions) []redelivery.Option {
	o.AckGroupingOptions = &c.Group
	return nil
}

func (c *randomConfig) wideWorker() []worker.Option {
	options := []worker.Option{worker.WithFinishBatches(!c.NoFinish)}
	add := adder(&options)
	add(c.Hang > 0, worker.WithStuckLimit(stuckLimit))
	add(c.Crash > 0, worker.WithCrashLimit(max(1, c.Crash)))
	add(c.MaxAge > 0, worker.WithMaxAge(max(time.Millisecond, c.MaxAge)))
	return options
}

// widenFate adds the features of wide runs to the plan for a message.
func (r *randomRun) widenFate(f *fate) {
	f.pause = worker.PauseFor(f.after/4, errTest)
	if r.PauseFor && r.rng.IntN(10) == 0 {
		f.ends = append([]error{f.pause}, f.ends...)
	}
	f.hangs = len(r.fates) < r.Hang
}

// loseConsumer closes the Consumer or the client of a Worker. Run must return an error.
func (e *member) loseConsumer() {
	if e.Ends == clientCloses {
		e.client.Close()
	} else {
		e.c.Close()
	}
	select {
	case err := <-e.ended:
		if err == nil || !strings.Contains(err.Error(), "the consumer is lost") && !e.isStuck(err) {
			e.fault("Run of Worker %d returns %[3]v after %[2]s", e.k, e.Ends, err)
		}
	case <-time.After(e.Drain + 5*time.Second + 5*time.Second + time.Duration(e.Hang)*hangTime): // a busy slot notices it later
		e.fault("Run of Worker %d does not return after %s: %+v", e.k, e.Ends, e.w.Stats())
	}
	e.c.Close()
}

// isStuck reports whether Run returned because of a handler that hangs.
func (e *member) isStuck(err error) bool {
	return e.Hang > 0 && err != nil && strings.Contains(err.Error(), "did not return within")
}

// localRetries returns how many local retries may come in a row. When a message is dropped as lost, the redelivery has
// local retries of its own.
func (c *randomConfig) localRetries() int {
	if c.Single() {
		return c.Local
	}
	return 2 * c.Local
}

// dueNow ends all delays.
func (r *randomRun) dueNow(present []*member) {
	forget := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, f := range r.fates {
			f.due = time.Time{}
		}
	}
	forget()
	for _, e := range present {
		e.c.RedeliverNow()
	}
	forget()
}

// observed is the registry with the metrics of a member, and what they must show.
type observed struct {
	*prometheus.Registry
	calls map[redelivery.Outcome]int // messages of handlers' calls, by the outcome that they asked for
}

func (e *member) observe() (redelivery.Option, worker.Option) {
	e.metrics = &observed{prometheus.NewRegistry(), map[redelivery.Outcome]int{}}
	m, err := metrics.New(e.metrics)
	require.NoError(e, err)
	return m.Observe(), m.ObserveWorker()
}

// count notes how a call ends for a message. The caller holds mu.
func (e *member) count(f *fate, end error) {
	if e.metrics == nil {
		return
	}
	outcome := redelivery.Nacked
	switch {
	case end == nil:
		outcome = redelivery.Acked
	case worker.IsSnooze(end):
		outcome = redelivery.Snoozed
	case errors.Is(end, f.permanent):
		outcome = redelivery.DeadLettered
	}
	e.metrics.calls[outcome]++
}

// value returns the sum of those series of a metric that have a label with the value.
func (o *observed) value(name, value string) (sum int) {
	families, _ := o.Gather()
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			has := value == ""
			for _, l := range m.GetLabel() {
				has = has || l.GetValue() == value
			}
			if has {
				sum += int(m.GetCounter().GetValue()) + int(m.GetHistogram().GetSampleCount()) + int(m.GetGauge().GetValue())
			}
		}
	}
	return sum
}

// checkMetrics checks that the metrics of a member that has left agree with the calls of its handler.
func (e *member) checkMetrics() {
	if e.metrics == nil || e.Failed() || e.Hang > 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s, o := e.w.Stats(), e.metrics
	settled := func(outcome redelivery.Outcome) int { return o.value("redelivery_settled_total", string(outcome)) }
	letters := func(reason redelivery.Reason) int { return o.value("redelivery_dead_letters_total", string(reason)) }
	is := func(what string, n, want int) {
		if n != want {
			e.fault("Worker %d has %s %d, want %d: %+v", e.k, what, n, want, s)
		}
	}
	for _, outcome := range []redelivery.Outcome{redelivery.Acked, redelivery.Nacked, redelivery.Snoozed, redelivery.DeadLettered} {
		want := o.calls[outcome]
		if outcome == redelivery.DeadLettered {
			want += int(s.Crashed)
		}
		is(fmt.Sprint("handler durations of ", outcome), o.value("redelivery_handler_duration_seconds", string(outcome)), want)
	}
	if !e.Exact() || s.Left > 0 {
		return
	}
	is("acked messages", settled(redelivery.Acked), int(s.Succeeded))
	is("dead letters", settled(redelivery.DeadLettered), o.value("redelivery_dead_letters_total", ""))
	is("permanent dead letters", letters(redelivery.ReasonPermanent)+letters(redelivery.ReasonCrashed), int(s.Permanent))
	if failed := settled(redelivery.Nacked) + settled(redelivery.Reconsumed) + letters(redelivery.ReasonMaxDeliveries); !e.KeyOrder {
		is("failed and snoozed messages", failed+settled(redelivery.Snoozed), int(s.Failed+s.Snoozed))
		if e.RetryFrom == 0 { // with RetryFrom a snoozed message may go to the retry topic
			is("snoozed messages", settled(redelivery.Snoozed), int(s.Snoozed))
		}
	}
}
