package worker_test

import (
	"cmp"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"golang.org/x/time/rate"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// randomConfig has the settings of a random run.
type randomConfig struct {
	Seed                               uint64
	Kind                               pulsar.SubscriptionType
	Topics, Partitions, Messages, Keys int
	Batched, IndexAcks, Response       bool
	Queue                              int

	Workers, Unloads int
	Joins, Leaves    bool // one of the Workers joins or leaves during the run
	Interruption     string
	Outage           bool // nearly all calls fail for a while

	Concurrency, Window, Local, Rate int
	KeyOrder, Policy, CancelLost     bool
	Batch                            worker.Batch // zero for a Handler
	Pause, Timeout, Drain            time.Duration

	Delay, AckTimeout, RetryFrom time.Duration
	MaxDeliveries                uint32
	Retry                        bool
	MemoryLimit                  int64
	Log, Debug                   bool
	From                         redelivery.Source

	randomWide
}

// Runs with seeds of randomNarrow or more are wide.
const randomNarrow = 1 << 40

const (
	workerPauses   = "the Worker pauses" // and its Consumer gives back; only a Worker may call GiveBack: see New
	consumerPauses = "the Consumer pauses"
)

// longAckTimeout is longer than any handler takes.
const longAckTimeout = 4 * time.Second

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// oneOf draws one of some values.
func oneOf[E any](rng *rand.Rand, of ...E) E { return of[rng.IntN(len(of))] }

// sometimes draws one of some values, or the zero value.
func sometimes[E any](rng *rand.Rand, percent int, of ...E) (e E) {
	if rng.IntN(100) < percent {
		e = oneOf(rng, of...)
	}
	return e
}

func newRandomConfig(seed uint64) *randomConfig {
	rng := rand.New(rand.NewPCG(seed%randomNarrow, 1))
	c := &randomConfig{
		Seed: seed, Kind: oneOf(rng, pulsar.Exclusive, pulsar.Failover, pulsar.Shared, pulsar.Shared, pulsar.KeyShared, pulsar.KeyShared),
		Topics: 1 + sometimes(rng, 25, 1), Partitions: sometimes(rng, 40, 1, 2, 3), Messages: 20 + rng.IntN(60), Keys: sometimes(rng, 60, 1, 5, 20),
		Batched: sometimes(rng, 60, true), IndexAcks: sometimes(rng, 50, true), Response: sometimes(rng, 25, true),
		Queue: sometimes(rng, 50, 5, 5, 5, 50, 50, 50, 1),

		Workers: 1 + sometimes(rng, 40, 1, 2), Unloads: sometimes(rng, 40, 1, 2),
		Joins: sometimes(rng, 30, true), Leaves: sometimes(rng, 35, true),
		Interruption: sometimes(rng, 35, workerPauses, workerPauses, consumerPauses), Outage: sometimes(rng, 25, true),

		Concurrency: oneOf(rng, 1, 2, 4, 8), Window: sometimes(rng, 35, 3, 10, 20), Local: sometimes(rng, 25, 1, 2), Rate: sometimes(rng, 20, 100, 500),
		KeyOrder: sometimes(rng, 45, true), Policy: sometimes(rng, 30, true), CancelLost: sometimes(rng, 30, true),
		Batch: worker.Batch{MaxMessages: sometimes(rng, 35, 1, 3, 10, 100), MaxBytes: sometimes(rng, 20, int64(200)), MaxWait: ms(oneOf(rng, 1, 20, 100))},
		Pause: ms(oneOf(rng, 20, 200, 1000)), Timeout: sometimes(rng, 40, 10*time.Second), Drain: ms(oneOf(rng, 0, 200, 5000, 30000)),

		Delay: ms(oneOf(rng, 0, 20, 100, 600)), AckTimeout: sometimes(rng, 40, ms(300), ms(1000), longAckTimeout), RetryFrom: ms(sometimes(rng, 50, 50)),
		MaxDeliveries: sometimes[uint32](rng, 50, 2, 3, 5), Retry: sometimes(rng, 35, true),
		MemoryLimit: oneOf[int64](rng, 0, 3000, redelivery.DefaultMemoryLimit, redelivery.DefaultMemoryLimit, redelivery.DefaultMemoryLimit), Log: sometimes(rng, 20, true), Debug: sometimes(rng, 50, true),
		From: oneOf(rng, redelivery.FromAuto, redelivery.FromAuto, redelivery.FromMemory, redelivery.FromBroker),
	}
	if c.Kind == pulsar.KeyShared && c.Keys == 0 {
		c.Keys = 5
	}
	if c.Kind == pulsar.Exclusive {
		c.Workers, c.Joins = 1, false
	}
	c.Joins = c.Joins || c.Leaves && c.Workers == 1
	if c.KeyOrder && c.Keys == 1 { // all messages are handled one after another, each with its delays
		c.Messages /= 3
	}
	if c.Kind == pulsar.Exclusive || c.Kind == pulsar.Failover {
		c.Retry = false
	}
	if !c.Retry {
		c.RetryFrom = 0
	}
	if c.Response { // the broker's answer may be lost in an unload, or wait behind a full queue: docs/reliability.md
		c.Queue, c.Unloads = 0, 0
	}
	if seed >= randomNarrow {
		c.widen()
	}
	return c
}

// Letters reports whether there is a dead letter topic.
func (c *randomConfig) Letters() bool {
	return c.MaxDeliveries > 0 || c.Retry || c.MaxAge > 0 || c.Crash > 0
}

// Single reports whether only one Consumer has the subscription, and its connections last.
func (c *randomConfig) Single() bool {
	return c.Workers == 1 && !c.Joins && !c.Leaves && c.Unloads == 0 && c.Ends == ""
}

// MayTimeOut reports whether a message may be delivered again while its handler runs. On a slow computer that happens
// even with WithTimeout.
func (c *randomConfig) MayTimeOut() bool {
	return c.AckTimeout > 0 && (c.AckTimeout < longAckTimeout || c.Hang > 0)
}

// Exact reports whether no event can make a message come twice.
func (c *randomConfig) Exact() bool { return c.Single() && !c.MayTimeOut() }

// MayFork reports whether a message may be in its topic and in the retry topic at the same time, because its
// acknowledgement was lost or waits for the rest of its batch.
func (c *randomConfig) MayFork() bool { return c.RetryFrom > 0 && !c.Exact() }

// Ordered reports whether a message of a key is handled only after all earlier ones are settled.
func (c *randomConfig) Ordered() bool {
	owned := c.Workers == 1 && !c.Joins && c.Ends == "" || c.Kind == pulsar.KeyShared
	// With a crash limit, a message that was in another consumer's handler waits, and later messages of its key
	// overtake it.
	return c.KeyOrder && owned && c.Unloads == 0 && !c.MayTimeOut() && (c.Crash == 0 || c.Single())
}

// nackDelay is the delay of the Consumer's policy.
func (c *randomConfig) nackDelay(count uint32) time.Duration {
	return c.Delay + time.Duration(min(count, 3))*c.Delay/2
}

func (c *randomConfig) consumer(k int, client pulsar.Client, logger *slog.Logger) (pulsar.ConsumerOptions, []redelivery.Option) {
	o := pulsar.ConsumerOptions{
		Name: fmt.Sprint("consumer", k), SubscriptionName: "sub", Type: c.Kind, SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
		ReceiverQueueSize: c.Queue, EnableBatchIndexAcknowledgment: c.IndexAcks, AckWithResponse: c.Response, RetryEnable: c.Retry,
	}
	if c.Letters() {
		o.DLQ = &pulsar.DLQPolicy{MaxDeliveries: cmp.Or(c.MaxDeliveries, 1000)}
	}
	options := []redelivery.Option{redelivery.WithNackRedeliveryBackoff(backoff.Func(c.nackDelay)), redelivery.WithRedeliveryFrom(c.From),
		redelivery.WithMemoryLimit(c.MemoryLimit), redelivery.WithLogger(logger)}
	add := adder(&options)
	add(c.Seed%2 == 0, redelivery.WithoutBatchIndexAcks()) // by default these acks are on if acks are grouped
	add(c.AckTimeout > 0, redelivery.WithAckTimeout(c.AckTimeout))
	add(c.RetryFrom > 0, redelivery.WithNackRetryTopic(c.RetryFrom))
	// If the Consumer published over the client with which it receives, the broker's answer might wait behind a full
	// queue: docs/reliability.md.
	add(c.Queue > 0 && c.Queue < 10, redelivery.WithClient(client))
	add(c.Log, redelivery.WithAttemptLog(redelivery.AttemptLog{}))
	if c.Wide {
		options = append(options, c.wideConsumer(&o)...)
	}
	return o, options
}

func (c *randomConfig) worker() []worker.Option {
	options := []worker.Option{worker.WithConcurrency(c.Concurrency), worker.WithDrainTimeout(c.Drain), worker.WithLogger(quiet)}
	add := adder(&options)
	add(c.KeyOrder, worker.WithKeyOrder())
	add(c.Window > 0, worker.WithPauseOnFailure(c.Window, 0.9, backoff.Fixed(c.Pause)))
	add(c.Local > 0, worker.WithLocalRetries(c.Local, backoff.Fixed(5*time.Millisecond)))
	add(c.Rate > 0, worker.WithRateLimit(rate.NewLimiter(rate.Limit(c.Rate), 10)))
	add(c.Policy, worker.WithPolicy(policyFor))
	add(c.CancelLost, worker.WithCancelLost())
	add(c.Timeout > 0, worker.WithTimeout(c.Timeout))
	if c.Wide {
		options = append(options, c.wideWorker()...)
	}
	return options
}

// adder returns a function that appends an option if wanted is true.
func adder[O any](options *[]O) func(wanted bool, option O) {
	return func(wanted bool, option O) {
		if wanted {
			*options = append(*options, option)
		}
	}
}
