package main

import (
	"context"
	"os"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// fault is a fault and the work that it disturbs.
type fault struct {
	set        set
	name, what string
	types      []pulsar.SubscriptionType
	work       work
	also       [][]string // sets of variants; each makes a further trial, if it fits the type
	short      bool       // a trial takes only a few seconds
	needs      brokerKind
	logFails   bool // during the fault the log of attempts must report a failure
	make       func(context.Context, *trial) error
}

// set is a group of faults.
type set string

const (
	chaos  set = "chaos"  // brokers, connections and consumers die under an application that fails in all ways
	kill   set = "kill"   // processes with a log of attempts die, or restart normally
	owners set = "owners" // partitions and keys change their owners
)

// brokerKind is the kind of broker that a fault needs.
type brokerKind string

const (
	anyBroker brokerKind = ""
	killable  brokerKind = "killable" // of test/scripts/pulsar; the trial may kill it, or change settings of all topics
	guarded   brokerKind = "guarded"  // a broker started for the trial that checks the roles of consumers
	clustered brokerKind = "cluster"  // two brokers started for the trial
	inProcess brokerKind = "pulsartest"
)

var (
	allTypes   = []pulsar.SubscriptionType{pulsar.Shared, pulsar.KeyShared, pulsar.Failover, pulsar.Exclusive}
	shared     = []pulsar.SubscriptionType{pulsar.Shared, pulsar.KeyShared}
	onlyShared = []pulsar.SubscriptionType{pulsar.Shared}

	mixed    = work{Messages: 1000, Min: time.Second}
	waiting  = work{Messages: 1000, Min: 5 * time.Second, NackAll: true}
	retrying = work{Messages: 1000, Min: time.Second, Reconsume: true}
	away     = work{Messages: 1000, Min: time.Second, Partitions: 3}
)

// variants are other ways to do a work, drawn at random. Some do not fit some works.
var variants = []struct {
	name string
	fits func(work) bool
	set  func(*work)
}{
	{"chan", func(w work) bool { return !w.Chan && w.App == mixedApp }, func(w *work) { w.Chan = true }},
	{"wrap", func(w work) bool { return !w.Wrap && w.App == mixedApp }, func(w *work) { w.Wrap = true }},
	{"partitions", func(w work) bool { return w.Partitions == 0 }, func(w *work) { w.Partitions = 3 }},
	{"alone", func(w work) bool { return w.App == poisoned }, func(w *work) { w.Alone = true }},
	{plain, func(w work) bool {
		return w.App == service || w.App == byKey && !w.Ordered ||
			w.App == mixedApp && !w.Chan && !w.Wrap && !w.Reconsume && !w.Cumulative && !w.Log
	}, func(w *work) { w.Plain = true }},
	{"one process", func(w work) bool { return w.App == service }, func(w *work) { w.Processes = 1 }},
	{"no index acks", func(w work) bool { return w.App == service }, func(w *work) { w.WholeBatches = true }},
	{"any order", func(w work) bool { return w.Ordered }, func(w *work) { w.Ordered = false }},
	{"cumulative", func(w work) bool {
		return w.App == mixedApp && (w.Type == pulsar.Failover || w.Type == pulsar.Exclusive) && !w.NackAll &&
			!w.Reconsume && !w.Log && !w.Cumulative
	}, func(w *work) { w.Cumulative = true }},
}

var chaosFaults = []fault{
	{set: chaos, name: "broker killed",
		what:  "SIGKILL of the broker while all messages wait after a nack; it starts again on the same data",
		types: allTypes, work: waiting, short: true, needs: killable, make: onceAllWait(func(ctx context.Context,
			t *trial) error {
			t.noteFault("broker killed")
			if _, err := script(ctx, "kill"); err != nil {
				return err
			}
			_, err := script(ctx, "start", "-keep")
			return err
		})},
	{set: chaos, name: "connections cut", what: "all connections are cut every 200 ms, for 10 s",
		types: allTypes, work: mixed, short: true, make: repeat(50, 200*time.Millisecond, cut),
		also: [][]string{{"chan", "wrap", "partitions"}, {"cumulative"}, {"cumulative", "chan", "wrap"}}},
	{set: chaos, name: "retries cut", what: "connections cut, with reconsumes",
		types: shared, work: retrying, make: repeat(50, 200*time.Millisecond, cut), also: [][]string{{"wrap"}}},
	{set: chaos, name: "stalled", what: "all data is held back for three keep-alive intervals",
		types: allTypes, work: mixed, make: func(ctx context.Context, t *trial) error {
			sleep(ctx, time.Second)
			t.noteFault("stalled")
			t.proxy.Stall(ctx, 3*keepAlive)
			return nil
		}},
	{set: chaos, name: "half-open", what: "the other side of each connection vanishes without closing it, five times",
		types: allTypes, work: mixed, make: repeat(5, 3*time.Second, func(_ context.Context, t *trial) error {
			t.noteFault("half-open")
			t.proxy.HalfOpen()
			return nil
		}), also: [][]string{{"cumulative"}}},
	{set: chaos, name: "slow link", what: "all data takes 20 ms more, at 100 kB/s",
		types: allTypes, work: mixed, make: func(_ context.Context, t *trial) error {
			t.proxy.Slow(20*time.Millisecond, 100_000)
			return nil
		}},
	{set: chaos, name: "unloads", what: "the topic is unloaded every second, ten times",
		types: allTypes, work: mixed, short: true, make: repeat(10, time.Second,
			func(ctx context.Context, t *trial) error {
				return eachTopic(ctx, t, "PUT", "/unload")
			}), also: [][]string{{"cumulative", "partitions"}}},
	{set: chaos, name: "one partition away",
		what: "one of three partitions cannot be looked up for 20 s or more, until all messages of the others are " +
			"settled",
		types: allTypes, work: away, make: hideOne, also: [][]string{{"cumulative"}}},
	{set: chaos, name: "terminated", what: "the topic is terminated while all messages wait after a nack",
		types: allTypes, work: waiting, make: onceAllWait(func(ctx context.Context, t *trial) error {
			return eachTopic(ctx, t, "POST", "/terminate")
		})},
	{set: chaos, name: "subscription deleted",
		what:  "deleted by force while all messages wait after a nack; the consumer creates it again",
		types: allTypes, work: waiting, make: onceAllWait(func(ctx context.Context, t *trial) error {
			return eachTopic(ctx, t, "DELETE", "/subscription/"+subscription+"?force=true")
		})},
	{set: chaos, name: "retry topic full",
		what:  "the retry topic's backlog quota, producer_exception, is exceeded while messages are reconsumed",
		types: shared, work: retrying, needs: killable, make: fillRetryTopic},
	{set: chaos, name: "one of two dies", what: "SIGKILL of one of two consumers; another takes its place, three times",
		types: shared, work: processes(2), short: true, make: repeat(3, 2*time.Second, replace)},
	{set: chaos, name: "three of five die", what: "SIGKILL of three of five consumers, one after the other",
		types: shared, work: processes(5),
		make: repeat(3, 2*time.Second, func(_ context.Context, t *trial) error { return t.end(os.Kill) })},
	{set: chaos, name: "active one dies",
		what:  "SIGKILL of the older of two consumers; another takes its place, three times",
		types: []pulsar.SubscriptionType{pulsar.Failover}, work: processes(2), make: repeat(3, 2*time.Second, replace),
		also: [][]string{{"cumulative"}}},
	{set: chaos, name: "joins", what: "a consumer joins every 2 s, six times; after every second join the oldest " +
		"is closed or killed, in turn",
		types: allTypes[:3], work: processes(1), make: join, also: [][]string{{"cumulative"}}},
	{set: chaos, name: "ack responses lost",
		what:  "the broker's answers to 5 acknowledgements are lost; broker in process",
		types: onlyShared, needs: inProcess, short: true,
		work: work{Messages: 200, Min: 200 * time.Millisecond, AckWithResponse: true},
		make: func(_ context.Context, t *trial) error {
			t.broker.inProcess.Inject("ACK_RESPONSE", "", 5, pulsartest.Drop)
			return nil
		}},
	{set: chaos, name: "queue of one", what: "ReceiverQueueSize 1, and connections cut every 200 ms for 4 s",
		types: allTypes, work: work{Messages: 500, Min: 200 * time.Millisecond, Queue: 1},
		make: repeat(20, 200*time.Millisecond, cut)},
	{set: chaos, name: "50,000 waiting",
		what:  "50,000 messages, the most that the broker allows, wait after a nack; all connections are cut once",
		types: onlyShared, work: work{Messages: 50_000, Min: 20 * time.Second, NackAll: true},
		make: onceAllWait(cut)},
}

func processes(n int) work {
	w := mixed
	w.Processes, w.Min = n, 300*time.Millisecond
	return w
}

// repeat returns a function that makes a fault several times.
func repeat(
	times int, every time.Duration, do func(context.Context, *trial) error) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		for i := range times {
			sleep(ctx, every)
			t.show("%d of %d", i+1, times)
			if err := do(ctx, t); err != nil {
				return err
			}
		}
		return nil
	}
}

// onceAllWait returns a function that makes a fault when each message has failed and waits.
func onceAllWait(do func(context.Context, *trial) error) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		err := t.until(ctx, "until all wait", func(n counts) bool { return n.failed >= t.work.Messages })
		if err != nil {
			return err
		}
		return do(ctx, t)
	}
}

func cut(_ context.Context, t *trial) error {
	t.noteFault("cut")
	t.proxy.Cut()
	return nil
}

func replace(_ context.Context, t *trial) error {
	if err := t.end(os.Kill); err != nil {
		return err
	}
	return t.startProcess()
}

// eachTopic calls the admin API for the topic, or for each of its partitions.
func eachTopic(ctx context.Context, t *trial, method, path string) error {
	return t.each(ctx, t.work.topics(), method, path)
}

func (t *trial) each(ctx context.Context, topics []string, method, path string) error {
	for _, topic := range topics {
		t.noteFault(method + path)
		err := patiently(ctx, func() error { return t.broker.callAdmin(ctx, method, topic+path, nil, nil) })
		if err != nil {
			return err
		}
	}
	return nil
}

// hideOne makes the lookups of one partition fail. The other partitions must not wait for that partition.
func hideOne(ctx context.Context, t *trial) error {
	const hidden = 1
	sleep(ctx, time.Second)
	topic := t.work.topics()[hidden]
	t.proxy.Hide(topic)
	defer t.proxy.Hide("")
	t.noteFault("unloaded")
	err := patiently(ctx, func() error { return t.broker.callAdmin(ctx, "PUT", topic+"/unload", nil, nil) })
	if err != nil {
		return err
	}
	begin, others := time.Now(), t.work.Messages-(t.work.Messages+t.work.Partitions-1-hidden)/t.work.Partitions
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return t.until(ctx, "until all of the other partitions are settled", func(counts) bool {
		return time.Since(begin) >= 20*time.Second && t.settledWithout(hidden) == others
	})
}

func join(ctx context.Context, t *trial) error {
	for i := range 6 {
		sleep(ctx, 2*time.Second)
		t.show("%d of 6", i+1)
		if err := t.startProcess(); err != nil {
			return err
		}
		if i%2 == 1 {
			if err := t.end([]os.Signal{os.Interrupt, os.Kill}[i/2%2]); err != nil {
				return err
			}
		}
	}
	return nil
}

// fillRetryTopic sets a quota that the retry topic exceeds, until the broker has refused retries.
func fillRetryTopic(ctx context.Context, t *trial) error {
	return overQuota(ctx, t, 10_000, "until reconsumes are refused", func(n counts) bool { return n.refused > 0 })
}
