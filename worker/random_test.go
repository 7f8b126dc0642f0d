package worker_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

var (
	randomRuns = flag.Uint64("random.runs", 0, "how many random runs TestRandomWorkers makes in place of its own")
	randomSeed = flag.Uint64("random.seed", 0, "the only seed of TestRandomWorkers, or the first with -random.runs")
)

// randomFixed are the seeds of runs that are made each time. Each takes a short time, and together they cover nine
// tenths of all pairs of settings.
var randomFixed = []uint64{55, 75, 114, 158, 208, 214, 237, 244, 253, 311, 348, 363,
	randomNarrow + 261, randomNarrow + 2351}

// Workers with random options join, handle messages and leave, at a broker that unloads their topics. Each message
// succeeds or becomes a dead letter. None comes back early to the Consumer that failed on it, and none is handled again
// without a reason. Keys keep their order. Handlers are called as long as messages are left. Run and Close return.
func TestRandomWorkers(t *testing.T) {
	t.Parallel()
	seeds, first := randomFixed, *randomSeed
	if *randomRuns > 0 || first > 0 {
		seeds = nil
		if first == 0 {
			first = rand.Uint64N(1 << 40)
		}
		for i := range max(1, *randomRuns) {
			seeds = append(seeds, first+i)
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			newRandomRun(t, newRandomConfig(seed)).run()
		})
	}
}

// randomRun is a run of Workers with the settings of a randomConfig.
type randomRun struct {
	*randomConfig
	*site
	publisher pulsar.Client // has a connection of its own
	rng       *rand.Rand
	topics    []string
	log       logtest.Buffer

	mu    sync.Mutex
	all   []*member // all Workers that ever joined
	fates []*fate
	last  time.Time   // when a handler was last called or returned
	down  atomic.Bool // set while nearly all calls fail
}

func newRandomRun(t *testing.T, c *randomConfig) *randomRun {
	r := &randomRun{randomConfig: c, site: newSite(t, pulsartest.WithBatchIndexAcknowledgment()), // like a real one
		rng: rand.New(rand.NewPCG(c.Seed, 2)), last: time.Now()}
	r.publisher = r.newClient()
	for i := range c.Topics {
		r.topics = append(r.topics, fmt.Sprint(topicname.Full(r.topic), "-", i))
		r.create(r.topics[i], c.Partitions)
	}
	return r
}

// elsewhere returns the dead letter topic that some permanent errors name.
func (r *randomRun) elsewhere() string { return r.topics[0] + "-elsewhere" }

func (r *randomRun) run() {
	var present []*member
	for range r.Workers {
		present = append(present, r.newMember())
	}
	r.send()
	ctx, cancel := context.WithCancel(context.Background())
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer cancel()
	if r.Letters() {
		letters, err := r.client.Subscribe(pulsar.ConsumerOptions{Topics: []string{r.topics[0] + "-sub-DLQ", r.elsewhere()}, SubscriptionName: "letters",
			SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
		require.NoError(r, err)
		defer letters.Close()
		watchers.Go(func() { r.countLetters(ctx, letters) })
	}
	for _, e := range present {
		e.start()
	}
	watchers.Go(func() { r.watch(ctx) })
	present = r.runEvents(present)
	if !r.within(90*time.Second, func() bool { return r.pending() == "" }) {
		r.fault("some messages are not settled in time: %v", r.pending())
	} else if what := ""; !r.within(40*time.Second, func() bool { what = r.unrest(present); return what == "" }) {
		r.fault("after all messages were settled, %s", what)
	}
	for _, e := range present {
		e.leave()
	}
	if !r.Failed() && !r.within(5*time.Second, func() bool { return r.unacked() == 0 }) {
		r.fault("the broker has a backlog of %d", r.unacked())
	}
}

// runEvents makes the planned events happen, in random order, and returns the Workers that have not left.
func (r *randomRun) runEvents(present []*member) []*member {
	var events []func()
	for i := range r.Unloads {
		events = append(events, func() { r.unload(r.topics[i%len(r.topics)]) })
	}
	if r.Leaves {
		events = append(events, func() { present[0].leave(); present = present[1:] })
	}
	if r.Joins {
		events = append(events, func() {
			e := r.newMember()
			e.start()
			present = append(present, e)
		})
	}
	if r.Ends != "" {
		events = append(events, func() {
			if len(present) > 0 {
				present[0].loseConsumer()
				e := r.newMember()
				e.start()
				present = append(present[1:], e)
			}
		})
	}
	if r.DueNow {
		events = append(events, func() { r.dueNow(present) })
	}
	if r.Outage {
		events = append(events, func() { r.down.Store(true); time.Sleep(ms(500 + r.rng.IntN(1500))); r.down.Store(false) })
	}
	for range 2 {
		events = append(events, func() {
			if len(present) > 0 {
				present[r.rng.IntN(len(present))].interrupt()
			}
		})
	}
	if r.Kind != pulsar.Exclusive { // on Exclusive, a Worker joins after the other left
		r.rng.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	}
	for _, event := range events {
		time.Sleep(ms(50 + r.rng.IntN(300)))
		event()
	}
	return present
}

// send publishes the messages. Those of a key are published in order, to one partition.
func (r *randomRun) send() {
	lanes := map[string][]*fate{}
	for _, topic := range r.topics {
		o := pulsar.ProducerOptions{Topic: topic, DisableBatching: !r.Batched, BatchingMaxMessages: 7, BatchingMaxPublishDelay: ms(20)}
		if r.Kind == pulsar.KeyShared {
			o.BatcherBuilderType = pulsar.KeyBasedBatchBuilder
		}
		p, err := r.client.CreateProducer(o)
		require.NoError(r, err)
		defer p.Close()
		for range r.Messages / r.Topics {
			f := r.newFate()
			lane := topic + f.key
			f.before = lanes[lane]
			lanes[lane] = append(slices.Clip(f.before), f)
			r.fates = append(r.fates, f)
			msg := &pulsar.ProducerMessage{Payload: fmt.Appendf(nil, "%d %*s", len(r.fates)-1, 20+r.rng.IntN(200), ""), Key: f.key}
			p.SendAsync(context.Background(), msg, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				if err != nil {
					r.fault("send: %v", err)
				}
			})
		}
		require.NoError(r, p.FlushWithCtx(context.Background()))
	}
}
