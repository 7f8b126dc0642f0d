package suite

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
)

var (
	randomRuns = flag.Int("random.runs", 0, "how many random runs TestRandomApplications makes in place of its own")
	randomSeed = flag.Uint64("random.seed", 0, "the only seed of TestRandomApplications, or the first with -random.runs")
)

// Applications of random kinds work on a broker with random options: no message is lost, none comes early to the consumer that failed
// on it, and none comes after Ack where one consumer has the subscription.
func TestRandomApplications(t *testing.T) {
	t.Parallel()
	first, n := uint64(1), 16
	if *randomRuns > 0 {
		first, n = rand.Uint64N(1<<40), *randomRuns
	} else if *randomSeed > 0 {
		n = 1
	}
	if *randomSeed > 0 {
		first = *randomSeed
	}
	for i := range n {
		c := newRandomConfig(first + uint64(i))
		t.Run(fmt.Sprint(c.Seed), func(t *testing.T) {
			t.Parallel()
			newRandomRun(t, c).run()
		})
	}
}

// randomRun is a random application at work.
type randomRun struct {
	*randomConfig
	t      *testing.T
	b      *broker
	topics []string

	mu        sync.Mutex
	fates     []*fate
	published map[string][]published // by partition
	lulls     []lull                 // by consumer
	wrong     []string
	trace     []string
}

// lull tells when an application was given nothing although it waited.
type lull struct {
	calls int       // of Receive, one after the other
	last  time.Time // when there were enough of them
}

// published says where a message is in its partition.
type published struct {
	n  int
	id pulsar.MessageID
}

func newRandomRun(t *testing.T, c *randomConfig) *randomRun {
	r := &randomRun{randomConfig: c, t: t, b: newBroker(t), published: map[string][]published{}, lulls: make([]lull, c.Consumers)}
	for range c.Topics {
		r.topics = append(r.topics, r.b.topic(c.Partitions))
	}
	return r
}

func (r *randomRun) run() {
	consumers := make([]*redelivery.Consumer, r.Consumers)
	for i := range consumers {
		consumers[i] = r.subscribe(i)
	}
	r.send()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var apps sync.WaitGroup
	for k, c := range consumers {
		for w := range r.Workers {
			apps.Go(func() { r.work(ctx, c, k, uint64(k*10+w)) })
		}
	}
	if r.MaxDeliveries > 0 {
		dead := r.b.deadLetters(r.topics[0])
		apps.Go(func() { r.countDeadLetters(ctx, dead) })
	}
	rng := rand.New(rand.NewPCG(r.Seed, 99))
	for i := range r.Unloads {
		time.Sleep(ms(500 + rng.IntN(1000)))
		r.b.unload(r.topics[i%len(r.topics)])
	}
	if r.Leaves {
		time.Sleep(ms(300 + rng.IntN(1000)))
		consumers[0].Close()
		r.mu.Lock()
		r.lulls[0] = lull{last: time.Now().Add(time.Hour)}
		r.mu.Unlock()
	}
	complete := r.within(2*time.Minute, func() bool { return r.isComplete() && (r.Group.MaxTime == 0 || r.isAcked()) })
	time.Sleep(ms(500))
	cancel()
	apps.Wait()
	for i, c := range consumers {
		s := c.Stats()
		if !r.Leaves && !r.Multiple() && complete && (s.Waiting > 0 || s.HeldBytes > 0) {
			r.breaks("consumer %d still has what waits: %+v", i, s)
		}
		c.Close()
	}
	if complete && !r.within(5*time.Second, r.isAcked) {
		r.breaks("the broker has a backlog: %s", r.backlog())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, f := range r.fates {
		if !f.isOver() {
			r.wrongLocked("message %d is lost: %+v", n, f)
		} else if text := f.checkDeadLetters(r.randomConfig); text != "" {
			r.wrongLocked("message %d %s: %+v", n, text, f)
		}
	}
	if len(r.wrong) > 0 {
		r.t.Errorf("-random.seed %d: %+v\n%s", r.Seed, *r.randomConfig, strings.Join(r.wrong[:min(12, len(r.wrong))], "\n"))
		if r.Observed {
			r.t.Log(strings.Join(r.trace, "\n"))
		}
		for i, c := range consumers {
			r.t.Logf("consumer %d: %+v", i, c.Stats())
		}
	}
}

func (r *randomRun) within(d time.Duration, reached func() bool) bool {
	for begin := time.Now(); time.Since(begin) < d; time.Sleep(ms(100)) {
		if reached() {
			return true
		}
	}
	return false
}

func (r *randomRun) breaks(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrongLocked(format, args...)
}

func (r *randomRun) wrongLocked(format string, args ...any) {
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

// note writes down what a consumer did.
func (r *randomRun) note(k int, what string, msg pulsar.Message, id pulsar.MessageID) {
	n := ""
	if msg != nil {
		n = name(msg)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trace = append(r.trace, fmt.Sprintf("%v %d %s: %s %v", time.Now().Format("05.000"), k, what, n, id))
}

func (r *randomRun) isComplete() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.fates {
		if !f.isOver() {
			return false
		}
	}
	return true
}

// all are the topics of the subscription.
func (r *randomRun) all() (all []string) {
	if r.Retry {
		all = append(all, retryTopic(r.topics[0]))
	}
	for _, topic := range r.topics {
		all = append(all, partitionsOf(topic, r.Partitions)...)
	}
	return all
}

func (r *randomRun) isAcked() bool {
	for _, topic := range r.all() {
		if r.b.stats(topic, 0).Backlog > 0 {
			return false
		}
	}
	return true
}

func (r *randomRun) backlog() (text string) {
	for _, topic := range r.all() {
		text += fmt.Sprintf("%+v ", r.b.stats(topic, 0))
	}
	return text
}

func (r *randomRun) subscribe(k int) *redelivery.Consumer {
	opts, options := r.options()
	if r.Observed {
		told := func(what string) func(redelivery.Event) {
			return func(e redelivery.Event) { r.note(k, what, e.Message, e.ID) }
		}
		options = append(options, redelivery.WithObserver(redelivery.Observer{
			Delivered: func(e redelivery.Delivered) { r.note(k, "delivered "+e.Cause.String(), e.Message, e.ID) },
			Settled: func(e redelivery.Settled) {
				r.note(k, fmt.Sprint("settled ", e.Outcome, e.Delay, e.Err), e.Message, e.ID)
			},
			Held: told("held"), Dropped: told("dropped"), Swallowed: told("swallowed"), Asked: told("asked"),
		}))
	}
	if opts.Topic = r.topics[0]; len(r.topics) > 1 {
		opts.Topic, opts.Topics = "", r.topics
	}
	return r.b.subscribe(opts, options...)
}

// countDeadLetters counts the letters of each message.
func (r *randomRun) countDeadLetters(ctx context.Context, c pulsar.Consumer) {
	for {
		msg, err := c.Receive(ctx)
		if err != nil {
			return
		}
		n := r.number(msg)
		r.mu.Lock()
		r.fates[n].letters++
		r.mu.Unlock()
	}
}

func (r *randomRun) number(msg pulsar.Message) int {
	n, err := strconv.Atoi(name(msg))
	require.NoError(r.t, err)
	return n
}
