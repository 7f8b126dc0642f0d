package random

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

var (
	randomRuns = flag.Int("random.runs", 0, "random runs that TestRandomApplications makes in place of its fixed ones")
	randomSeed = flag.Uint64("random.seed", 0, "the only seed of TestRandomApplications, or the first with -random.runs")
)

// Random applications with random options run on a broker. No message is lost, and none comes early to the consumer
// that failed on it. With one consumer, none comes after Ack. A single worker gets the messages of a partition in
// order.
func TestRandomApplications(t *testing.T) {
	t.Parallel()
	for _, seed := range randomSeeds() {
		c := newRandomConfig(seed)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			newRandomRun(t, c).runWatched()
		})
	}
}

// randomSeeds returns the seeds of the runs.
func randomSeeds() (seeds []uint64) {
	n := *randomRuns
	switch {
	case n > 0 && *randomSeed == 0:
		*randomSeed = rand.Uint64N(2 * randomNarrow)
	case n == 0 && *randomSeed > 0:
		n = 1
	case n == 0:
		for i := range uint64(16) {
			seeds = append(seeds, 1+i)
		}
		for _, seed := range randomFixed {
			seeds = append(seeds, randomNarrow+seed)
		}
		return seeds
	}
	for i := range n {
		seeds = append(seeds, *randomSeed+uint64(i))
	}
	return seeds
}

// randomFixed has the seeds of short wide runs that the test always makes. All but the first few have shown a defect.
var randomFixed = []uint64{11, 15, 18, 23, 29, 32, 36, 39, 46, 52, 57, 71, 91, 98, 110, 122, 216}

// randomRun is one run of a random application.
type randomRun struct {
	*randomConfig
	t      *testing.T
	guard  *guard
	b      *testkit.Broker
	topics []string

	mu        sync.Mutex
	fates     []*fate
	published map[string][]published // by partition, in order
	reached   map[string]int         // the highest delivered place of each partition
	takes     int                    // deliveries, including repeated ones
	lulls     []lull                 // by consumer
	paused    []time.Time            // by consumer: when it was paused; zero if it is not paused
	consumers []*redelivery.Consumer
	complete  bool // all messages were settled
	again     int  // redeliveries in a row
	fresh     int  // messages not delivered yet
	began     time.Time
	joined    time.Time
	arrived   bool   // the consumer that joined got a message
	away      string // the partition that has no broker
	wrong     []string
	trace     []string
}

// lull records when an application waited for messages and got none.
type lull struct {
	calls int       // how many calls of Receive in a row returned no message
	last  time.Time // when calls was last 3 or more
}

func newRandomRun(t *testing.T, c *randomConfig) *randomRun {
	g := &guard{TB: t, seed: c.Seed, calls: map[int]call{}, patience: 40 * time.Second}
	if c.Response { // upstream waits for answers, even for lost ones
		g.patience = 2 * time.Minute
	}
	r := &randomRun{randomConfig: c, t: t, guard: g, published: map[string][]published{}, reached: map[string]int{},
		lulls: make([]lull, c.Consumers), paused: make([]time.Time, c.Consumers)}
	// like the real broker; without index acks messages may fork: see MayFork
	indexAcks := pulsartest.WithBatchIndexAcknowledgment()
	if c.Scene == sceneAway {
		r.b = testkit.NewBrokerInProcess(g, pulsar.ClientOptions{}, indexAcks)
	} else {
		r.b = testkit.NewBroker(g, indexAcks)
	}
	switch {
	case c.Scene == sceneVanishes:
		// upstream looks for the deleted topic for this long, even after Close
		r.b.Connect(pulsar.ClientOptions{OperationTimeout: 2 * time.Second})
		g.Cleanup(func() { time.Sleep(3 * time.Second) })
	case c.Response:
		// upstream waits this long for an answer that an unload lost, and then reconnects
		r.b.Connect(pulsar.ClientOptions{OperationTimeout: 5 * time.Second})
	}
	for range c.Topics {
		if c.Scene == sceneVanishes && len(r.topics) == 1 {
			r.topics = append(r.topics, create(r.b, r.topics[0]+"-other", c.Partitions))
			continue
		}
		r.topics = append(r.topics, r.b.NewTopic(c.Partitions))
	}
	if c.Scene == sceneVanishes {
		create(r.b, r.vanishing(), 2)
	}
	return r
}

func (r *randomRun) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var apps sync.WaitGroup
	starts := func(c *redelivery.Consumer) {
		k := slices.Index(r.consumers, c)
		for w := range r.Workers {
			apps.Go(func() { r.work(ctx, c, k, uint64(k*10+w)) })
		}
		apps.Go(func() { r.watchMemory(ctx, c, k) })
		if r.Pauses {
			apps.Go(func() { r.pauses(ctx, c, k) })
		}
	}
	for i := range r.Consumers {
		if r.Scene != sceneJoins || i < r.Consumers-1 {
			r.consumers = append(r.consumers, r.subscribe(i))
		}
	}
	r.send(7, r.Messages)
	r.began = time.Now()
	for _, c := range r.consumers {
		starts(c)
	}
	apps.Go(func() { r.watchDue(ctx) })
	if r.MaxDeliveries > 0 {
		dead := r.b.SubscribeDeadLetters(r.topics[0])
		apps.Go(func() { r.countDeadLetters(ctx, dead) })
	}
	rng := rand.New(rand.NewPCG(r.base(), 99))
	switch r.Scene {
	case sceneAway:
		r.goAway(rng)
	case sceneJoins:
		r.joins(rng, starts)
	case sceneVanishes:
		r.vanishes(rng)
	default:
	}
	for i := range r.Unloads {
		time.Sleep(time.Duration(500+rng.IntN(1000)) * time.Millisecond)
		r.b.Unload(r.topics[i%len(r.topics)])
	}
	if r.Leaves {
		time.Sleep(time.Duration(300+rng.IntN(1000)) * time.Millisecond)
		r.closes(r.consumers[0])
		r.mu.Lock()
		r.lulls[0] = lull{last: time.Now().Add(time.Hour)}
		r.mu.Unlock()
	}
	r.complete = r.within(2*time.Minute, func() bool { return r.isComplete() && (r.Group.MaxTime == 0 || r.isAcked()) })
	time.Sleep(500 * time.Millisecond)
	if r.complete && !r.within(time.Minute, r.isConnected) {
		r.fault("a consumer does not reconnect")
	}
	time.Sleep(200 * time.Millisecond)
	cancel()
	apps.Wait()
	for i, c := range r.consumers {
		s := c.Stats()
		if !r.Leaves && !r.Multiple() && r.complete && (s.Waiting > 0 || s.BufferedBytes > 0) {
			r.fault("consumer %d still keeps messages: %+v", i, s)
		}
		r.closes(c)
	}
	if r.complete && !r.isWrong() && !r.within(5*time.Second, r.isAcked) {
		r.fault("the broker has a backlog: %s", r.backlog())
	}
}

// closes closes a consumer, and fails the run if Close hangs.
func (r *randomRun) closes(c *redelivery.Consumer) {
	defer r.guard.begin("Close")()
	c.Close()
}

func (r *randomRun) within(d time.Duration, reached func() bool) bool {
	for begin := time.Now(); time.Since(begin) < d && !r.guard.over.Load(); time.Sleep(100 * time.Millisecond) {
		if reached() {
			return true
		}
		if r.isWrong() { // the run has already failed
			d = min(d, 3*time.Second)
		}
	}
	return false
}

func (r *randomRun) isComplete() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.fates {
		letterIsMissing := f.letters == 0 && (f.refused || f.dead) // the consumer of dead letters may get it later
		if (!f.isOver() || letterIsMissing) && (r.away == "" || f.partition != r.away) {
			return false
		}
	}
	return true
}

// all returns the topics of the subscription.
func (r *randomRun) all() (all []string) {
	if r.Retry {
		all = append(all, testkit.RetryTopic(r.topics[0]))
	}
	for _, topic := range r.topics {
		all = append(all, testkit.PartitionsOf(topic, r.Partitions)...)
	}
	return all
}

func (r *randomRun) isAcked() bool {
	for _, topic := range r.all() {
		if r.b.Stats(topic, 0).Backlog > 0 {
			return false
		}
	}
	return true
}

// isConnected reports whether all consumers of existing topics are connected. Acknowledgements that an unload lost stay
// lost if the consumer is closed before it has reconnected.
func (r *randomRun) isConnected() bool {
	return r.away != "" || r.Scene == sceneVanishes || !slices.ContainsFunc(r.consumers, func(c *redelivery.Consumer) bool {
		return c.Stats().Reconnecting > 0
	})
}

func (r *randomRun) backlog() (text string) {
	for _, topic := range r.all() {
		text += fmt.Sprintf("%+v ", r.b.Stats(topic, 0))
	}
	return text
}

func (r *randomRun) subscribe(k int) *redelivery.Consumer {
	opts, options := r.options()
	if r.Scene == sceneAway || r.Scene == sceneVanishes {
		opts.BackOffPolicyFunc = newFastReconnects
	}
	if r.Wide { // wide runs log many refusals
		options = append(options, redelivery.WithLogger(slog.New(slog.DiscardHandler)))
	}
	if r.Observed {
		note := func(what string) func(redelivery.Event) {
			return func(e redelivery.Event) { r.note(k, what, e.Message, e.ID) }
		}
		options = append(options, redelivery.WithObserver(redelivery.Observer{
			Delivered: func(e redelivery.Delivered) { r.note(k, "delivered "+string(e.Cause), e.Message, e.ID) },
			Settled: func(e redelivery.Settled) {
				r.note(k, fmt.Sprint("settled ", e.Outcome, e.Delay, e.Err), e.Message, e.ID)
			},
			Buffered: note("buffered"), Dropped: note("dropped"), Swallowed: note("swallowed"), Asked: note("asked"),
		}))
	}
	switch {
	case r.Scene == sceneVanishes:
		r.pattern(&opts)
	case len(r.topics) > 1:
		opts.Topics = r.topics
	default:
		opts.Topic = r.topics[0]
	}
	defer r.guard.begin("Subscribe")()
	return r.b.Subscribe(opts, options...)
}
