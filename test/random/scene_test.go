package random

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/backoff"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// scene is an event of a wide run that needs settings of its own.
type scene int

const (
	sceneOrdinary scene = iota
	sceneAway           // one partition has no broker until all others are finished
	sceneBusy           // messages fail for as long as new ones wait
	sceneJoins          // another consumer joins, and must get messages
	sceneVanishes       // a partitioned topic of a pattern is deleted
)

func (s scene) String() string {
	return [...]string{"ordinary", "away", "busy", "joins", "vanishes"}[s]
}

// set changes the configuration to fit a scene.
func (c *randomConfig) set(s scene, rng *rand.Rand) {
	c.Scene = s
	if s == sceneOrdinary {
		return
	}
	c.ZeroQueue, c.Leaves, c.Unloads, c.Response = false, false, 0, false
	if c.Queue == 1000 {
		c.Queue = 0
	}
	if rng.IntN(5) > 0 {
		c.Wrap = unwrapped
	}
	switch s {
	case sceneAway:
		if c.Topics == 1 && c.Partitions < 2 {
			c.Partitions = 3
		}
		// ungrouped acknowledgements would wait for the broker
		c.Group = pulsar.AckGroupingOptions{MaxSize: 1000, MaxTime: 100 * time.Millisecond}
	case sceneBusy:
		c.Messages = 100
		c.Delay = time.Duration([]int{0, 1, 10}[rng.IntN(3)]) * time.Millisecond
		c.Workers, c.Consumers, c.Queue = 1+rng.IntN(2), 1, 0
		c.Cumulative, c.Slow, c.Chunks, c.Faultless, c.Every = false, false, false, false, 0
		c.Retry, c.RetryFrom, c.MaxDeliveries, c.Timeout, c.MemoryLimit = false, 0, 0, 0, -1
	case sceneJoins:
		c.Kind = []pulsar.SubscriptionType{pulsar.Shared, pulsar.KeyShared, pulsar.KeyShared, pulsar.Failover}[rng.IntN(4)]
		c.Messages, c.Consumers = 2*joinKeys, 2
		c.Delay = time.Duration(300+rng.IntN(600)) * time.Millisecond
		c.Retry, c.RetryFrom, c.MaxDeliveries, c.Timeout, c.TimeoutDelay = false, 0, 0, 0, 0
		c.Slow = false
		// a key moves only when all its messages are acknowledged at the broker, also with plain consumers
		if c.Kind == pulsar.KeyShared && c.Group.MaxTime == 0 {
			c.Group.MaxTime = 100 * time.Millisecond
		}
		if c.Kind != pulsar.Failover {
			c.Cumulative, c.Every = false, 0
		}
		if c.Kind == pulsar.KeyShared && c.From == redelivery.FromMemory { // with FromMemory a consumer keeps its keys, as documented
			c.From = redelivery.FromAuto
		}
	case sceneVanishes:
		c.Retry, c.RetryFrom, c.MaxDeliveries = false, 0, 0
		c.Group = pulsar.AckGroupingOptions{MaxSize: 1000, MaxTime: 100 * time.Millisecond}
	default:
	}
}

// stubborn reports whether stubborn messages still fail. The caller holds mu.
func (r *randomRun) stubborn() bool {
	switch {
	case len(r.wrong) > 0:
		return false
	case r.Scene == sceneBusy:
		return r.fresh > 0
	case r.Scene == sceneJoins:
		return r.Kind != pulsar.Failover && !r.arrived && (r.joined.IsZero() || time.Since(r.joined) < 25*time.Second)
	}
	return false
}

// joinKeys is the number of keys when a consumer joins. The application fails on one message of each key until that
// consumer has got a message.
const joinKeys = 20

// joins makes another consumer join, and sends messages until that consumer gets one.
func (r *randomRun) joins(rng *rand.Rand, starts func(*redelivery.Consumer)) {
	time.Sleep(time.Duration(500+rng.IntN(1000)) * time.Millisecond)
	c := r.subscribe(r.Consumers - 1)
	r.mu.Lock()
	r.consumers = append(r.consumers, c)
	r.joined = time.Now()
	r.mu.Unlock()
	starts(c)
	mayGet := r.Kind != pulsar.Failover // on Failover the new consumer may be inactive
	arrived := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.arrived || !mayGet
	}
	for i := uint64(0); i == 0 || !arrived() && time.Since(r.joined) < 20*time.Second; i++ {
		r.send(100+i, 2*joinKeys)
		r.within(400*time.Millisecond, arrived)
	}
	if !arrived() {
		r.fault("the consumer that joined %v ago gets nothing", time.Since(r.joined).Round(time.Second))
	}
}

// most is how many redeliveries may come in a row while new messages wait.
const most = 50

// checkTurn checks that redeliveries do not starve new messages. The caller holds mu.
func (a *randomApp) checkTurn(f *fate) {
	if f.handled == 0 {
		a.fresh--
		a.again = 0
	} else if a.again++; a.Scene == sceneBusy && a.again > most && a.fresh > 0 && time.Since(a.began) > 2*time.Second {
		a.faultLocked("%d redeliveries in a row while %d new messages wait", a.again, a.fresh)
		a.again = 0
	}
	if a.Scene == sceneJoins && a.k == a.Consumers-1 {
		a.arrived = true
	}
}

// goAway disconnects one partition until all others are finished.
func (r *randomRun) goAway(rng *rand.Rand) {
	all := slices.Sorted(maps.Keys(r.published))
	topic := all[rng.IntN(len(all))]
	time.Sleep(time.Duration(rng.IntN(700)) * time.Millisecond)
	r.mu.Lock()
	r.away = topic
	r.mu.Unlock()
	server := r.b.InProcess
	server.Inject("SUBSCRIBE", topic, -1, pulsartest.Fail("MetadataError", "injected"))
	server.CloseConsumers(topic, testkit.Subscription)
	r.within(time.Minute, r.isComplete)
	time.Sleep(time.Second)
	r.mu.Lock()
	defer r.mu.Unlock()
	server.Inject("SUBSCRIBE", topic, 0, pulsartest.Pass)
	r.away = ""
	for _, f := range r.fates {
		if f.due.Before(time.Now()) && !f.due.IsZero() {
			f.due = time.Now() // it could not come earlier
		}
	}
}

// vanishing is the topic that is deleted. It has two partitions.
func (r *randomRun) vanishing() string { return r.topics[0] + "-vanishes" }

// pattern makes a consumer subscribe by a pattern, which also matches the topic that is deleted.
func (r *randomRun) pattern(o *pulsar.ConsumerOptions) {
	o.TopicsPattern, o.AutoDiscoveryPeriod = r.topics[0]+"(-other|-vanishes)?$", time.Second
}

// create creates a topic with the given number of partitions; 0 for an unpartitioned one.
func create(b *testkit.Broker, name string, partitions int) string {
	if partitions > 0 {
		b.Admin("PUT", name, "/partitions", partitions, nil)
	} else {
		b.Admin("PUT", name, "", nil, nil)
	}
	return name
}

// vanishes deletes the empty topic vanishing.
func (r *randomRun) vanishes(rng *rand.Rand) {
	time.Sleep(time.Duration(rng.IntN(700)) * time.Millisecond)
	r.b.Admin("DELETE", r.vanishing(), "/partitions?force=true", nil, nil)
}

// fastReconnects is a constant backoff of reconnections.
type fastReconnects struct{}

func (fastReconnects) Next() time.Duration       { return 200 * time.Millisecond }
func (fastReconnects) IsMaxBackoffReached() bool { return false }
func (fastReconnects) Reset()                    {}

func newFastReconnects() backoff.Policy { return fastReconnects{} }
