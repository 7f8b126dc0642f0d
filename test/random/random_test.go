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
	randomRuns = flag.Int("random.runs", 0, "how many random runs TestRandomApplications makes in place of its own")
	randomSeed = flag.Uint64("random.seed", 0, "the only seed of TestRandomApplications, or the first with -random.runs")
)

// Applications of random kinds work on a broker with random options: no message is lost, none comes early to the
// consumer that failed on it, none comes after Ack where one consumer has the subscription, and one worker gets the
// messages of a partition in their order.
func TestRandomApplications(t *testing.T) {
	t.Parallel()
	for _, seed := range randomSeeds() {
		c := newRandomConfig(seed)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			newRandomRun(t, c).watched()
		})
	}
}

// randomSeeds are those of the runs to be made.
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

// randomFixed are wide runs that are made each time, none of which takes long: each but the first few has shown a
// defect.
var randomFixed = []uint64{11, 15, 18, 23, 29, 32, 36, 39, 46, 52, 57, 71, 91, 98, 110, 122, 216}

// randomRun is a random application at work.
type randomRun struct {
	*randomConfig
	t      *testing.T
	guard  *guard
	b      *testkit.Broker
	topics []string

	mu        sync.Mutex
	fates     []*fate
	published map[string][]published // by partition, in order
	reached   map[string]int         // the last place of each partition that was handed out
	takes     int                    // of messages, again too
	lulls     []lull                 // by consumer
	paused    []time.Time            // by consumer: since when; zero if it is not
	consumers []*redelivery.Consumer
	complete  bool // everything was settled
	again     int  // how many messages in a row were handed out again
	fresh     int  // how many were not handed out yet
	began     time.Time
	joined    time.Time
	arrived   bool   // a message, at the consumer that joined
	away      string // the partition that has no broker
	wrong     []string
	trace     []string
}

// lull tells when an application was given nothing although it waited.
type lull struct {
	calls int       // of Receive, one after the other
	last  time.Time // when there were enough of them
}

func newRandomRun(t *testing.T, c *randomConfig) *randomRun {
	g := &guard{TB: t, seed: c.Seed, calls: map[int]call{}, patience: 40 * time.Second}
	if c.Response { // upstream waits for answers that were lost
		g.patience = 2 * time.Minute
	}
	r := &randomRun{randomConfig: c, t: t, guard: g, published: map[string][]published{}, reached: map[string]int{},
		lulls: make([]lull, c.Consumers), paused: make([]time.Time, c.Consumers)}
	indexAcks := pulsartest.WithBatchIndexAcknowledgment() // as the real one has, or a batch may fork
	if c.Scene == sceneAway {
		r.b = testkit.NewBrokerInProcess(g, pulsar.ClientOptions{}, indexAcks)
	} else {
		r.b = testkit.NewBroker(g, indexAcks)
	}
	switch {
	case c.Scene == sceneVanishes:
		r.b.Connect(pulsar.ClientOptions{OperationTimeout: 2 * time.Second}) // for which upstream looks for the topic, Close or not
		g.Cleanup(func() { time.Sleep(3 * time.Second) })
	case c.Response:
		r.b.Connect(pulsar.ClientOptions{OperationTimeout: 5 * time.Second}) // for which upstream waits for an answer that an unload lost, and does not connect again
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
		apps.Go(func() { r.weigh(ctx, c, k) })
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
	apps.Go(func() { r.waitsFor(ctx) })
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
	cancel()
	apps.Wait()
	for i, c := range r.consumers {
		s := c.Stats()
		if !r.Leaves && !r.Multiple() && r.complete && (s.Waiting > 0 || s.BufferedBytes > 0) {
			r.breaks("consumer %d still has what waits: %+v", i, s)
		}
		r.closes(c)
	}
	if r.complete && !r.isWrong() && !r.within(5*time.Second, r.isAcked) {
		r.breaks("the broker has a backlog: %s", r.backlog())
	}
}

// closes closes a consumer, which must not hang.
func (r *randomRun) closes(c *redelivery.Consumer) {
	defer r.guard.begin("Close")()
	c.Close()
}

func (r *randomRun) within(d time.Duration, reached func() bool) bool {
	for begin := time.Now(); time.Since(begin) < d && !r.guard.over.Load(); time.Sleep(100 * time.Millisecond) {
		if reached() {
			return true
		}
		if r.isWrong() { // which is enough to know
			d = min(d, 3*time.Second)
		}
	}
	return false
}

func (r *randomRun) isComplete() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.fates {
		if !f.isOver() && (r.away == "" || f.partition != r.away) {
			return false
		}
	}
	return true
}

// all are the topics of the subscription.
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

func (r *randomRun) backlog() (text string) {
	for _, topic := range r.all() {
		text += fmt.Sprintf("%+v ", r.b.Stats(topic, 0))
	}
	return text
}

func (r *randomRun) subscribe(k int) *redelivery.Consumer {
	opts, options := r.options()
	if r.Scene == sceneAway || r.Scene == sceneVanishes {
		opts.BackOffPolicyFunc = newSoon
	}
	if r.Wide { // where much is refused
		options = append(options, redelivery.WithLogger(slog.New(slog.DiscardHandler)))
	}
	if r.Observed {
		told := func(what string) func(redelivery.Event) {
			return func(e redelivery.Event) { r.note(k, what, e.Message, e.ID) }
		}
		options = append(options, redelivery.WithObserver(redelivery.Observer{
			Delivered: func(e redelivery.Delivered) { r.note(k, "delivered "+string(e.Cause), e.Message, e.ID) },
			Settled: func(e redelivery.Settled) {
				r.note(k, fmt.Sprint("settled ", e.Outcome, e.Delay, e.Err), e.Message, e.ID)
			},
			Buffered: told("buffered"), Dropped: told("dropped"), Swallowed: told("swallowed"), Asked: told("asked"),
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
