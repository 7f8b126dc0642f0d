package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"pgregory.net/rapid"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/virtual"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// downtime is a random run of a Worker. Its handlers need a database, which is down at times.
type downtime struct {
	kind          pulsar.SubscriptionType
	memoryLimit   int64
	partial       bool // only messages of key a fail when the database is down
	reconnects    []time.Duration
	otherRuns     []span // when another Worker runs, whose handlers succeed
	concurrency   int
	window        int
	ratio         float64
	batch         worker.Batch // zero for a Handler
	keyOrder      bool
	timeout       time.Duration // 0 for none
	maxDeliveries uint32        // 0 for no dead letter topic
	down          []span
	paused        []span
	messages      []queried
	done          time.Duration
}

type span struct{ from, to time.Duration }

type queried struct {
	at, takes time.Duration
	key       string
	permanent bool
	poison    bool
}

const tryPause = 2 * time.Second

func drawDowntime(t *rapid.T) downtime {
	spans := func(label string, most int, offset time.Duration) (all []span) {
		for range rapid.IntRange(0, most).Draw(t, label) {
			from := time.Duration(rapid.IntRange(0, 3000).Draw(t, "from"))*tick + offset
			all = append(all, span{from, from + time.Duration(rapid.IntRange(1, 1500).Draw(t, "for"))*tick})
		}
		return all
	}
	d := downtime{
		kind:          rapid.SampledFrom([]pulsar.SubscriptionType{pulsar.Shared, pulsar.KeyShared, pulsar.Exclusive}).Draw(t, "kind"),
		memoryLimit:   rapid.SampledFrom([]int64{1500, 1 << 20}).Draw(t, "memoryLimit"),
		partial:       rapid.IntRange(0, 3).Draw(t, "partial") == 3,
		concurrency:   rapid.IntRange(1, 4).Draw(t, "concurrency"),
		window:        rapid.IntRange(1, 6).Draw(t, "window"),
		ratio:         rapid.SampledFrom([]float64{0.3, 0.5, 1}).Draw(t, "ratio"),
		batch:         rapid.SampledFrom([]worker.Batch{{}, {}, {MaxMessages: 3}}).Draw(t, "batch"),
		keyOrder:      rapid.Bool().Draw(t, "keyOrder"),
		timeout:       rapid.SampledFrom([]time.Duration{0, 10 * time.Second}).Draw(t, "timeout"),
		maxDeliveries: uint32(rapid.SampledFrom([]int{0, 2, 4}).Draw(t, "maxDeliveries")),
		down:          spans("down", 2, 3*time.Millisecond),
		paused:        spans("paused", 1, 5*time.Millisecond),
		done:          rapid.SampledFrom([]time.Duration{20 * time.Second, 90 * time.Second}).Draw(t, "done") + 7*time.Millisecond,
	}
	if d.kind != pulsar.Exclusive {
		d.otherRuns = spans("otherRuns", 1, 7*time.Millisecond)
	}
	for _, s := range spans("reconnects", 2, 9*time.Millisecond) {
		d.reconnects = append(d.reconnects, s.from)
	}
	takes := []int{0, 0, 1, 50}
	if d.timeout > 0 && d.batch == (worker.Batch{}) {
		takes = append(takes, 3500) // it ignores its context
	}
	poison := rapid.IntRange(0, 2).Draw(t, "poison") == 2
	if poison || len(takes) > 4 {
		d.done += 20 * time.Minute
	}
	for range rapid.IntRange(1, 15).Draw(t, "messages") {
		d.messages = append(d.messages, queried{
			at:        time.Duration(rapid.IntRange(0, 2000).Draw(t, "at")) * tick,
			takes:     time.Duration(rapid.SampledFrom(takes).Draw(t, "takes")) * tick,
			key:       rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "key"),
			permanent: rapid.IntRange(0, 7).Draw(t, "permanent") == 7,
			poison:    poison && rapid.Bool().Draw(t, "fails"),
		})
	}
	return d
}

// query is a message in a call of the handler.
type query struct {
	msg, of      int // the message's number, and how many messages the call had
	began, ended time.Duration
	failed       bool // but may succeed later
	byOther      bool // the other Worker called its handler
}

// watchedDowntime is a downtime that runs. It is the worker's logger, so it sees when outages begin and end.
type watchedDowntime struct {
	downtime
	slog.Handler
	began time.Time

	mu      sync.Mutex
	queries []query
	active  int
	memory  func() int64 // bytes that the consumer keeps
	outages []span       // span.to is -1 while the outage lasts
	wrong   []string
}

func (m *watchedDowntime) Handle(_ context.Context, r slog.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case strings.Contains(r.Message, "most messages fail"):
		m.outages = append(m.outages, span{time.Since(m.began), -1})
	case strings.Contains(r.Message, "the outage is over"):
		m.outages[len(m.outages)-1].to = time.Since(m.began)
	}
	return nil
}

func (m *watchedDowntime) Enabled(context.Context, slog.Level) bool { return true }

func (m *watchedDowntime) errorf(format string, args ...any) {
	m.wrong = append(m.wrong, fmt.Sprintf(format, args...))
}

// keptSize is how many bytes of the memory limit a message with a short payload takes.
const keptSize = 576

func within(at time.Duration, spans []span) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return at >= s.from && at < s.to })
}

func (m *watchedDowntime) handle(_ context.Context, msgs []pulsar.Message) error {
	began := time.Since(m.began)
	m.mu.Lock()
	m.active++
	if m.active > m.concurrency {
		m.errorf("%d handlers at %v", m.active, began)
	}
	limit := m.memoryLimit
	if m.maxDeliveries > 0 { // messages are kept for their dead letters even beyond the limit
		limit += int64(m.concurrency-1) * keptSize
	}
	if bytes := m.memory(); bytes > limit {
		m.errorf("%d bytes are kept at %v", bytes, began)
	}
	m.mu.Unlock()
	var numbers []int
	var takes time.Duration
	for _, msg := range msgs {
		var n int
		_, _ = fmt.Sscan(string(msg.Payload()), &n)
		numbers = append(numbers, n)
		takes = max(takes, m.messages[n].takes)
	}
	time.Sleep(takes)
	ended := time.Since(m.began)
	errs := worker.BatchError{}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.active--
	for i, n := range numbers {
		q := query{msg: n, of: len(msgs), began: began, ended: ended}
		switch {
		case m.messages[n].permanent:
			errs[i] = worker.Permanent(errTest)
		case m.messages[n].poison, within(ended, m.down) && (!m.partial || m.messages[n].key == "a"):
			q.failed = true
			errs[i] = errTest
		}
		m.queries = append(m.queries, q)
	}
	return errs
}

func TestOutageModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := drawDowntime(rt)
		var wrong []string
		synctest.Test(t, func(*testing.T) { wrong = d.run() })
		if len(wrong) > 0 {
			rt.Fatal(strings.Join(wrong, "\n"))
		}
	})
}

func (d downtime) run() []string {
	m := &watchedDowntime{downtime: d, began: time.Now()}
	broker := &virtual.Broker{}
	opts := orders
	opts.Type = d.kind
	if d.maxDeliveries > 0 {
		opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: d.maxDeliveries}
	}
	redeliveries := []redelivery.Option{redelivery.WithLogger(slog.New(slog.DiscardHandler)), redelivery.WithMemoryLimit(d.memoryLimit),
		redelivery.WithNackRedeliveryDelay(nackDelay), redelivery.WithAckTimeout(5 * time.Second)}
	consumer, err := redelivery.Subscribe(broker, opts, redeliveries...)
	if err != nil {
		return []string{err.Error()}
	}
	m.memory = func() int64 { return consumer.Stats().BufferedBytes }
	options := []worker.Option{worker.WithLogger(slog.New(m)), worker.WithConcurrency(d.concurrency),
		worker.WithPauseOnFailure(d.window, d.ratio, backoff.Fixed(tryPause))}
	if d.timeout > 0 {
		options = append(options, worker.WithTimeout(d.timeout))
	}
	if d.keyOrder {
		options = append(options, worker.WithKeyOrder())
	}
	w, err := worker.NewBatch(consumer, m.handle, d.batch, options...)
	if d.batch == (worker.Batch{}) {
		w, err = worker.New(consumer, func(ctx context.Context, msg pulsar.Message) error {
			return m.handle(ctx, []pulsar.Message{msg}).(worker.BatchError)[0]
		}, options...)
	}
	if err != nil {
		return []string{err.Error()}
	}
	for n, msg := range d.messages {
		time.AfterFunc(msg.at, func() {
			broker.Publish("orders", &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(n)), Key: msg.key})
		})
	}
	for _, s := range d.paused {
		time.AfterFunc(s.from, w.Pause)
		time.AfterFunc(s.to, w.Resume)
	}
	for _, at := range d.reconnects {
		time.AfterFunc(at, broker.Reconnect)
	}
	for _, s := range d.otherRuns {
		time.AfterFunc(s.from, func() { m.runOther(broker, opts, redeliveries, s.to-s.from) })
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(d.done, cancel)
	// Run names handlers that take long.
	if err := w.Run(ctx); err != nil && !strings.Contains(err.Error(), "did not return within") {
		m.errorf("%v", err)
	}
	m.check(broker)
	time.Sleep(time.Hour)
	consumer.Close()
	return m.wrong
}
