package model

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

var (
	modelRuns  = flag.Int("model.runs", 0, "random runs that TestModel makes in place of those of testdata/model.txt")
	modelReset = flag.Bool("model.resets", false, "operators also move the cursor: some runs fail (docs/reliability.md)")
	modelSeeds = flag.String("model.seeds", "", "seeds of TestModel's runs, separated by commas")
	modelTrace = flag.Int("model.trace", 100, "how many lines of a failed run's trace are shown")
)

// modelConfig is the configuration of a run.
type modelConfig struct {
	Seed  uint64
	Wide  bool // the run also draws From, Resolution and more values of Group
	Kind  pulsar.SubscriptionType
	Steps int

	Topics, Queue   int
	Latency         time.Duration
	IndexAcks       bool // the client's setting
	DefaultAcks     bool // Subscribe's default decides IndexAcks
	BrokerIndexAcks bool
	Response        bool // acknowledgements are confirmed
	Group           pulsar.AckGroupingOptions
	From            redelivery.Source
	Resolution      time.Duration // 0 for the default
	Batches         bool
	OwnBackOff      bool // the application has a BackOffPolicyFunc of its own

	Chan           bool          // the application uses Chan
	Pace           time.Duration // mean time between the application's steps
	Hands, Workers int           // how many messages the application has at a time, and how many goroutines receive
	Backlog        int
	MaxDelay       time.Duration
	Timeout        time.Duration // the ack timeout; 0 for none
	MemoryLimit    int64         // below 0 for the default
	DoneContexts   bool
	Cumulative     bool
	Seeks          bool
	Callbacks      bool
	Panics         bool
	PanicsInside   bool // interceptors panic
	AckErrors      bool
	Abrupt         bool // the Consumer is closed in the middle of the run
	Closes         bool // a callback closes the Consumer

	Breaks bool // connections break
	Rough  bool // connections that break swallow acknowledgements
	Others bool // other consumers join and leave
	Resets bool
	Every  int // mean number of steps between two faults

	modelDeep
}

// Seeds below narrow are neither wide nor deep, seeds below 2*narrow are wide, and the others are wide and deep.
const narrow = 1_000_000_000

// base returns the seed of the run's random numbers.
func (c *modelConfig) base() uint64 { return c.Seed % narrow }

func newModelConfig(seed uint64) *modelConfig {
	c := &modelConfig{Seed: seed, Wide: seed >= narrow, Steps: 300}
	rng := rand.New(rand.NewPCG(c.base(), 1))
	often := func(percent int) bool { return rng.IntN(100) < percent }
	c.Kind = []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Exclusive, pulsar.Failover, pulsar.Shared, pulsar.Shared,
		pulsar.KeyShared}[rng.IntN(6)]
	c.Topics = []int{1, 1, 1, 1, 2, 3}[rng.IntN(6)]
	c.Queue = 5 + rng.IntN(46)
	c.Latency = []time.Duration{200 * time.Microsecond, 2 * time.Millisecond, 40 * time.Millisecond}[rng.IntN(3)]
	c.Batches = often(50)
	c.IndexAcks = often(30)
	c.BrokerIndexAcks = c.IndexAcks && often(70)
	c.Response = often(40)
	switch {
	case often(15):
		c.Group = pulsar.AckGroupingOptions{MaxSize: 1}
	case often(15):
		c.Group = pulsar.AckGroupingOptions{MaxSize: 20, MaxTime: 300 * time.Millisecond}
	}
	if c.Wide && often(40) {
		c.Group = []pulsar.AckGroupingOptions{{MaxSize: 20, MaxTime: 30 * time.Second}, {MaxSize: 50, MaxTime: 5 * time.Second},
			{MaxTime: 300 * time.Millisecond}}[rng.IntN(3)]
	}
	if c.Wide {
		rng := rand.New(rand.NewPCG(c.base(), 77))
		c.From = []redelivery.Source{redelivery.FromAuto, redelivery.FromMemory, redelivery.FromBroker}[rng.IntN(3)]
		c.Resolution = []time.Duration{0, 0, 0, time.Millisecond, 20 * time.Millisecond, 500 * time.Millisecond}[rng.IntN(6)]
	}
	c.OwnBackOff = often(30)

	c.Chan = often(35)
	c.Pace = []time.Duration{100 * time.Microsecond, 5 * time.Millisecond, 50 * time.Millisecond, 400 * time.Millisecond,
		1500 * time.Millisecond, 10 * time.Second, time.Minute}[rng.IntN(7)]
	c.Hands = []int{1, 3, 30}[rng.IntN(3)]
	c.Workers = 1 + rng.IntN(3)
	c.Backlog = []int{10, 2 * c.Queue, 150}[rng.IntN(3)]
	c.MaxDelay = []time.Duration{2 * time.Second, time.Minute}[rng.IntN(2)]
	if often(30) {
		c.Timeout = []time.Duration{700 * time.Millisecond, 10 * c.Pace}[rng.IntN(2)]
	}
	c.MemoryLimit = []int64{-1, -1, 3000, 0}[rng.IntN(4)]
	c.DoneContexts = !c.Chan && often(25)
	c.Cumulative = c.rewinds() && often(40)
	c.Seeks = c.Topics == 1 && often(15)
	c.Callbacks = often(25)
	_, _ = c.Callbacks && often(40), c.Callbacks && often(25) // only drawn, so that old seeds give the same runs
	c.AckErrors = c.Response && often(40)

	if often(65) {
		c.Every = 10 + rng.IntN(60)
		c.Others = c.Kind != pulsar.Exclusive && often(50)
		c.Breaks = !c.Others || often(60)
		c.Rough = often(40)
		c.Resets = often(25) && *modelReset
	}
	c.Closes = c.Callbacks && often(15)
	c.Abrupt = c.Closes || often(10)
	if c.Cumulative && !c.Response { // upstream drops redeliveries up to the last cumulative ack
		c.Seeks, c.Resets = false, false
	}
	if seed >= 2*narrow {
		c.deepen()
	}
	if rng := rand.New(rand.NewPCG(c.base(), 78)); !c.IndexAcks && rng.IntN(100) < 60 {
		c.DefaultAcks, c.BrokerIndexAcks = true, rng.IntN(100) < 50
	}
	return c
}

// TestModel performs random operations of an application, a broker and a network. It compares all results and
// deliveries with what the model allows. A run that fails prints its seed; this repeats the run:
//
//	go test ./test/model -run TestModel -model.seeds=SEED
func TestModel(t *testing.T) {
	t.Parallel()
	seeds := make([]uint64, *modelRuns)
	for i := range seeds {
		seeds[i] = rand.Uint64N(3 * narrow)
	}
	if *modelSeeds == "" && *modelRuns == 0 {
		// the seeds are fixed: with new random ones a change would fail by chance
		list, err := os.ReadFile("testdata/model.txt")
		if err != nil {
			t.Fatal(err)
		}
		known := strings.Fields(string(list))
		if !*testkit.Long {
			known = known[:len(known)/4]
		}
		*modelSeeds = strings.Join(known, ",")
	}
	if *modelSeeds != "" {
		seeds = nil
		for s := range strings.SplitSeq(*modelSeeds, ",") {
			seed, err := strconv.ParseUint(s, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			seeds = append(seeds, seed)
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runModel(t, newModelConfig(seed)) })
		})
	}
}

func runModel(t *testing.T, cfg *modelConfig) {
	r := newModelRun(t, cfg)
	r.publish(cfg.Backlog)
	var step, fault func()
	step = func() {
		r.steps--
		if r.steps < 0 {
			return
		}
		if cfg.Away && r.steps == 60 {
			r.goAway()
		}
		if r.rng.IntN(5) == 0 && !r.isSilent() {
			r.publish(cfg.Backlog)
		}
		r.act()
		r.checkMemory()
		r.w.after(time.Duration(r.rng.ExpFloat64()*float64(cfg.Pace))+1, step)
	}
	fault = func() {
		if r.steps >= 0 {
			r.fault()
			r.w.after(time.Duration(r.rng.ExpFloat64()*float64(cfg.Every)*float64(cfg.Pace)), fault)
		}
	}
	r.w.after(0, step)
	if cfg.Every > 0 {
		r.w.after(time.Duration(cfg.Every)*cfg.Pace/3, fault)
	}
	if r.w.run(1000*time.Hour, func() bool { return r.steps < 0 || r.isClosed() }) && !cfg.Abrupt {
		r.end()
	}
	r.close()
	if r.w.failed() {
		t.Fatalf("%v\nseed %d: %+v\n%v", r.w.failure, cfg.Seed, *cfg, r.w.end(*modelTrace))
	}
	t.Logf("%v, %d doubles, %d renewed, %+v", time.Since(r.w.start), r.doubles, r.renewed, r.c.Stats())
}
