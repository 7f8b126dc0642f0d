package random

import (
	"math/rand/v2"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// randomConfig is the configuration of a random run.
type randomConfig struct {
	Seed                     uint64
	Kind                     pulsar.SubscriptionType
	Topics, Partitions       int
	Messages                 int
	Batches, Chunks          bool
	Consumers, Workers       int
	Queue                    int
	ZeroQueue, Chan, Channel bool
	IndexAcks, Response      bool
	Group                    pulsar.AckGroupingOptions
	From                     redelivery.Source
	MemoryLimit              int64 // below 0 for the default
	Resolution               time.Duration
	Delay, Timeout           time.Duration
	TimeoutDelay             time.Duration
	Retry                    bool
	RetryFrom                time.Duration
	MaxDeliveries            int
	Cumulative, Slow         bool
	Unloads                  int
	Leaves, Observed         bool

	randomPairs
}

// Runs with seeds of randomNarrow or more are wide.
const randomNarrow = 1 << 40

// base returns the seed of the run's random numbers.
func (c *randomConfig) base() uint64 { return c.Seed % randomNarrow }

func newRandomConfig(seed uint64) *randomConfig {
	rng := rand.New(rand.NewPCG(seed%randomNarrow, 1))
	often := func(percent int) bool { return rng.IntN(100) < percent }
	c := &randomConfig{Seed: seed, Messages: 20 + rng.IntN(80), Topics: 1, Consumers: 1, Workers: 1 + rng.IntN(4)}
	c.Kind = []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Failover, pulsar.Shared, pulsar.Shared, pulsar.KeyShared}[rng.IntN(5)]
	isShared := c.Kind == pulsar.Shared || c.Kind == pulsar.KeyShared
	if often(30) {
		c.Partitions = 1 + rng.IntN(3)
	}
	if often(25) {
		c.Topics = 2
	}
	c.Batches = often(60)
	c.Chunks = often(20)
	if c.Kind != pulsar.Exclusive && often(35) {
		c.Consumers = 2 + rng.IntN(2)
		c.Leaves = often(50)
	}
	c.Queue = []int{0, 0, 1, 5, 50}[rng.IntN(5)]
	if c.Chunks && c.Queue > 0 {
		c.Queue = 50
	}
	c.Response = often(30)
	if c.Response && c.Queue > 0 {
		c.Queue = 1000 // while a small queue is full, upstream may not read the broker's answers: see docs/reliability.md
	}
	c.ZeroQueue = often(10) && !c.Response && c.Topics == 1 && c.Partitions == 0 && !c.Batches && !c.Chunks
	c.Chan = often(30) && !c.ZeroQueue
	c.Channel = c.Chan && often(50)
	c.IndexAcks = often(50)
	c.Group = []pulsar.AckGroupingOptions{{MaxSize: 1000, MaxTime: 100 * time.Millisecond}, {MaxSize: 1, MaxTime: time.Millisecond}, {MaxSize: 10, MaxTime: 20 * time.Millisecond},
		{MaxSize: 10}, {MaxSize: 100, MaxTime: time.Second}}[rng.IntN(5)]
	c.From = []redelivery.Source{redelivery.FromAuto, redelivery.FromMemory, redelivery.FromBroker}[rng.IntN(3)]
	c.MemoryLimit = []int64{-1, -1, -1, 0, 2000}[rng.IntN(5)]
	if often(30) {
		c.Resolution = time.Duration([]int{1, 20, 200}[rng.IntN(3)]) * time.Millisecond
	}
	c.Delay = time.Duration([]int{0, 20, 100, 700}[rng.IntN(4)]) * time.Millisecond
	if often(40) {
		c.Timeout = time.Duration(300+rng.IntN(1000)) * time.Millisecond
		if often(50) {
			c.TimeoutDelay = time.Duration(rng.IntN(500)) * time.Millisecond
		}
	}
	if isShared && !c.ZeroQueue && often(40) {
		c.Retry = true
		if often(40) {
			c.RetryFrom = 50 * time.Millisecond
		}
	}
	if c.Topics == 1 && !c.ZeroQueue && often(40) {
		c.MaxDeliveries, c.Group = 2+rng.IntN(4), pulsar.AckGroupingOptions{MaxSize: 1000, MaxTime: 100 * time.Millisecond}
	}
	c.Slow = often(30)
	if !isShared && c.Consumers == 1 && !c.Retry && c.MaxDeliveries == 0 && often(40) {
		c.Cumulative, c.Workers = true, 1
	}
	// upstream waits for OperationTimeout for each lost answer, and sends nothing in that time
	if often(40) && !c.Response {
		c.Unloads = 1 + rng.IntN(3)
	}
	c.Observed = often(30)
	if seed >= randomNarrow {
		c.widen()
	}
	return c
}

// Multiple reports whether there are several consumers, so that one may get a message that waits in another.
func (c *randomConfig) Multiple() bool { return c.Consumers > 1 }

// Exact reports whether no event of the run may make a message come twice or cost it an attempt. A lost connection,
// also of another topic, is such an event: the Consumer may withdraw a message that Chan offers, and the broker counts
// that delivery.
func (c *randomConfig) Exact() bool {
	return !c.Multiple() && c.Unloads == 0 && c.Scene != sceneAway && c.Scene != sceneVanishes && !c.MayTimeOutUnseen()
}

// MayFork reports whether a message may be both in its topic and in the retry topic. There are two reasons. First,
// another consumer may get the message, if its ack timeout is over or its acknowledgement has not reached the broker:
// it was lost, it waits for the rest of the batch, or it is overtaken by a request for another message of the batch.
// Second, the application may acknowledge one copy from its channel after another copy was published.
func (c *randomConfig) MayFork() bool {
	small := c.Queue > 0 && c.Queue < 10
	return c.Retry && (c.MayTimeOutUnseen() || c.Multiple() &&
		(c.Timeout > 0 || c.Unloads > 0 || c.Leaves || small || c.Scene == sceneAway || c.Batches && (!c.IndexAcks || c.From == redelivery.FromBroker || c.MemoryLimit >= 0)))
}

func (c *randomConfig) options() (pulsar.ConsumerOptions, []redelivery.Option) {
	o := pulsar.ConsumerOptions{
		SubscriptionName: testkit.Subscription, Type: c.Kind, SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest, ReceiverQueueSize: c.Queue,
		EnableZeroQueueConsumer: c.ZeroQueue, EnableBatchIndexAcknowledgment: c.IndexAcks, AckWithResponse: c.Response,
		AckGroupingOptions: &c.Group, RetryEnable: c.Retry, AutoAckIncompleteChunk: false,
	}
	if c.Channel {
		o.MessageChannel = make(chan pulsar.ConsumerMessage, c.Buffer)
	}
	if c.MaxDeliveries > 0 {
		o.DLQ = &pulsar.DLQPolicy{MaxDeliveries: uint32(c.MaxDeliveries)}
	} else if c.Retry {
		o.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 1000}
	}
	options := []redelivery.Option{redelivery.WithNackRedeliveryBackoff(c.policy()), redelivery.WithRedeliveryFrom(c.From)}
	if c.Seed%2 == 0 { // by default index acks are on if acknowledgements are grouped
		options = append(options, redelivery.WithoutBatchIndexAcks())
	}
	if c.MemoryLimit >= 0 {
		options = append(options, redelivery.WithMemoryLimit(c.MemoryLimit))
	}
	if c.Resolution > 0 {
		options = append(options, redelivery.WithRedeliveryResolution(c.Resolution))
	}
	if c.Timeout > 0 {
		options = append(options, redelivery.WithAckTimeout(c.Timeout))
		if c.TimeoutDelay > 0 {
			options = append(options, redelivery.WithAckTimeoutRedeliveryBackoff(backoff.Fixed(c.TimeoutDelay)))
		}
	}
	if c.RetryFrom > 0 {
		options = append(options, redelivery.WithNackRetryTopic(c.RetryFrom))
	}
	return o, options
}

func (c *randomConfig) policy() backoff.RedeliveryBackoff {
	if c.Scene == sceneBusy {
		return backoff.Fixed(c.Delay)
	}
	return backoff.Func(func(n uint32) time.Duration { return c.Delay + time.Duration(n)*c.Delay/2 })
}
