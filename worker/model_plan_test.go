package worker_test

import (
	"sort"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"pgregory.net/rapid"

	"github.com/pulsar-redelivery/redelivery/worker"
)

// plan is a random run of a Worker. Handlers begin and end at multiples of 10 ms, and all other events happen between
// these, so that the order depends only on the plan.
type plan struct {
	kind          pulsar.SubscriptionType
	concurrency   int
	batch         worker.Batch // zero for a Handler
	keyOrder      bool
	memoryLimit   int64         // of keyOrder
	timeout       time.Duration // 0 for none
	stuckLimit    time.Duration
	ackTimeout    time.Duration // 0 for none
	drain         time.Duration
	maxDeliveries uint32        // 0 for no dead letter topic
	maxAge        time.Duration // 0 for none
	outage        pausing       // window is 0 for no pause on failure
	messages      []planned
	events        []event
	done          time.Duration // when Run's context ends
	limited       bool          // with the rate limit of retryAndLimit
	localRetries  int           // 0 for none
}

// pausing has the arguments of WithPauseOnFailure.
type pausing struct {
	window int
	ratio  float64
	pause  time.Duration
}

// planned is a message, and what its handler does at each call; the last step is repeated.
type planned struct {
	at    time.Duration
	key   string
	steps []step
}

type step struct {
	takes   time.Duration
	stuck   bool // the handler does not return until Run has
	heeds   bool // the handler returns as soon as its context ends, with the same result
	returns result
}

type result int

const (
	succeeds result = iota
	fails
	permanent
	retryAfter
	snoozes
	panics
	exits
)

type event struct {
	at   time.Duration
	what string // pause, resume, reconnect, acks fail, acks work, sends fail, sends work, give up
}

const (
	nackDelay  = time.Second
	retryDelay = 3 * time.Second
	localPause = 500 * time.Millisecond
	tick       = 10 * time.Millisecond
)

func drawPlan(t *rapid.T) plan {
	ticks := func(label string, most int) time.Duration {
		return time.Duration(rapid.IntRange(0, most).Draw(t, label)) * tick
	}
	p := plan{
		kind: rapid.SampledFrom([]pulsar.SubscriptionType{pulsar.Shared, pulsar.Exclusive, pulsar.Failover, pulsar.KeyShared}).
			Draw(t, "type"),
		concurrency: rapid.IntRange(1, 4).Draw(t, "concurrency"),
		batch: rapid.SampledFrom([]worker.Batch{{}, {}, {MaxMessages: 3, MaxWait: time.Second}, {MaxBytes: 4},
			{MaxMessages: 2, MaxWait: 8 * time.Second}}).Draw(t, "batch"),
		keyOrder:      rapid.Bool().Draw(t, "keyOrder"),
		memoryLimit:   rapid.SampledFrom([]int64{1, 1500, 1 << 20}).Draw(t, "memoryLimit"),
		timeout:       rapid.SampledFrom([]time.Duration{0, 2 * time.Second, 20 * time.Second}).Draw(t, "timeout"),
		stuckLimit:    rapid.SampledFrom([]time.Duration{5 * time.Second, 30 * time.Second}).Draw(t, "stuckLimit"),
		ackTimeout:    rapid.SampledFrom([]time.Duration{0, 0, 5 * time.Second}).Draw(t, "ackTimeout"),
		drain:         rapid.SampledFrom([]time.Duration{0, time.Second, 30 * time.Second}).Draw(t, "drain"),
		maxDeliveries: uint32(rapid.IntRange(0, 3).Draw(t, "maxDeliveries")),
		maxAge:        rapid.SampledFrom([]time.Duration{0, 0, 4 * time.Second}).Draw(t, "maxAge"),
		done: ticks("done", 4000) + 7*time.Millisecond +
			rapid.SampledFrom([]time.Duration{0, time.Minute, 3 * time.Minute}).Draw(t, "later"),
	}
	if rapid.Bool().Draw(t, "pauses") {
		p.outage = pausing{
			rapid.IntRange(1, 4).Draw(t, "window"), rapid.SampledFrom([]float64{0.3, 1}).Draw(t, "ratio"),
			rapid.SampledFrom([]time.Duration{500 * time.Millisecond, 2 * time.Second, 5 * time.Second, time.Minute}).Draw(t, "pause"),
		}
	}
	step := rapid.Custom(func(t *rapid.T) step {
		return step{
			takes:   time.Duration(rapid.SampledFrom([]int{0, 0, 1, 50, 300, 1500}).Draw(t, "takes")) * tick,
			stuck:   rapid.IntRange(0, 15).Draw(t, "stuck") == 15,
			heeds:   rapid.Bool().Draw(t, "heeds"),
			returns: result(rapid.IntRange(0, 6).Draw(t, "returns")),
		}
	})
	for range rapid.IntRange(1, 10).Draw(t, "messages") {
		p.messages = append(p.messages, planned{ticks("at", 2000),
			rapid.SampledFrom([]string{"", "a", "a", "b", "c"}).Draw(t, "key"), rapid.SliceOfN(step, 1, 4).Draw(t, "steps")})
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "events") {
		p.events = append(p.events, event{ticks("at", 4000) + time.Duration(i+1)*100*time.Microsecond, rapid.SampledFrom([]string{
			"pause", "resume", "resume", "reconnect", "acks fail", "acks work", "sends fail", "sends work", "give up",
		}).Draw(t, "what")})
	}
	sort.Slice(p.events, func(i, j int) bool { return p.events[i].at < p.events[j].at })
	p.limited = rapid.SampledFrom([]bool{false, false, true}).Draw(t, "limited")
	p.localRetries = rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "localRetries")
	return p
}
