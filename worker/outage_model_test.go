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
	"github.com/pulsar-redelivery/redelivery/worker"
	"github.com/pulsar-redelivery/redelivery/worker/internal/virtual"
)

// downtime is a random run of a worker whose handlers need a database that is down at times.
type downtime struct {
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
	for range rapid.IntRange(1, 15).Draw(t, "messages") {
		d.messages = append(d.messages, queried{
			at:        time.Duration(rapid.IntRange(0, 2000).Draw(t, "at")) * tick,
			takes:     time.Duration(rapid.SampledFrom([]int{0, 0, 1, 50}).Draw(t, "takes")) * tick,
			key:       rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "key"),
			permanent: rapid.IntRange(0, 7).Draw(t, "permanent") == 7,
		})
	}
	return d
}

// query is a call of the handler with a message.
type query struct {
	msg, of      int // of so many messages of the call
	began, ended time.Duration
	failed       bool // and not for good
}

// watchedDowntime is one that runs. It is where the worker logs, which says when outages begin and end.
type watchedDowntime struct {
	downtime
	slog.Handler
	began time.Time

	mu      sync.Mutex
	queries []query
	active  int
	outages []span // to is -1 for one that lasts
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

func within(at time.Duration, spans []span) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return at >= s.from && at < s.to })
}

func (m *watchedDowntime) handle(_ context.Context, msgs []pulsar.Message) error {
	began := time.Since(m.began)
	m.mu.Lock()
	if m.active++; m.active > m.concurrency {
		m.errorf("%d handlers at %v", m.active, began)
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
		case within(ended, m.down):
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
	if d.maxDeliveries > 0 {
		opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: d.maxDeliveries}
	}
	consumer, err := redelivery.Subscribe(broker, opts, redelivery.WithLogger(slog.New(slog.DiscardHandler)),
		redelivery.WithNackRedeliveryDelay(nackDelay), redelivery.WithAckTimeout(5*time.Second))
	if err != nil {
		return []string{err.Error()}
	}
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
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(d.done, cancel)
	if err := w.Run(ctx); err != nil {
		m.errorf("%v", err)
	}
	m.check(broker)
	time.Sleep(time.Hour)
	consumer.Close()
	return m.wrong
}

func (m *watchedDowntime) check(broker *virtual.Broker) {
	m.checkTries()
	dead := map[string]bool{}
	for _, letter := range broker.Published(deadLetters) {
		dead[string(letter.Payload)] = true
	}
	failures := map[int]int{} // that count, or may: at the edges of outages
	for _, q := range m.queries {
		if q.failed && !slices.ContainsFunc(m.outages, func(o span) bool { return q.ended > o.from && (q.ended < o.to || o.to < 0) }) {
			failures[q.msg]++
		}
	}
	for _, o := range m.outages { // and the third of a message in an outage
		tried := map[int]int{}
		for _, q := range m.queries {
			if q.failed && q.ended > o.from && (q.ended < o.to || o.to < 0) {
				if tried[q.msg]++; tried[q.msg] > 2 {
					failures[q.msg]++
				}
			}
		}
	}
	acked := broker.Acked("orders")
	for n, msg := range m.messages {
		if payload := fmt.Sprint(n); dead[payload] && !msg.permanent && failures[n] < int(m.maxDeliveries) {
			m.errorf("message %d is a dead letter after %d failures outside of outages", n, failures[n])
		} else if m.settled() && !dead[payload] && !slices.Contains(acked, payload) && (!msg.permanent || m.maxDeliveries > 0) &&
			!(m.keyOrder && m.maxDeliveries == 0) { // permanent errors keep their keys then
			m.errorf("message %d is left", n)
		}
	}
}

// settled reports whether all was well for long enough in the end that nothing should be left.
func (m *watchedDowntime) settled() bool {
	const long = 40 * time.Second
	for _, s := range append(m.down, m.paused...) {
		if s.to+long > m.done {
			return false
		}
	}
	return m.done > long+20*time.Second
}

// checkTries checks that in an outage one message at a time was tried, each after a pause, and that it ended with a success.
func (m *watchedDowntime) checkTries() {
	for _, o := range m.outages {
		last, success := o.from, o.to < 0
		end := o.to
		if end < 0 {
			end = m.done + time.Hour
		}
		for _, q := range m.queries { // in the order in which they ended
			success = success || !q.failed && !m.messages[q.msg].permanent && q.ended == o.to
			if q.began <= o.from || q.began >= end {
				continue
			}
			if q.began < last+tryPause || q.of > 1 {
				m.errorf("in the outage from %v to %v %d messages were tried at %v, after %v", o.from, o.to, q.of, q.began, last)
			}
			last = q.ended
		}
		if !success {
			m.errorf("the outage from %v ended at %v without a success", o.from, o.to)
		}
	}
}
