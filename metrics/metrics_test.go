package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/metrics"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

var silent = slog.New(slog.DiscardHandler)

func newClient(t testing.TB) pulsar.Client {
	server, err := pulsartest.Start()
	require.NoError(t, err)
	t.Cleanup(server.Close)
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: server.URL(), Logger: logtest.Client(t)})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func send(t testing.TB, client pulsar.Client, topic string, payloads ...string) {
	t.Helper()
	p, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	require.NoError(t, err)
	defer p.Close()
	for _, payload := range payloads {
		_, err := p.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte(payload)})
		require.NoError(t, err)
	}
}

func subscribe(t testing.TB, client pulsar.Client, topic, subscription string,
	options ...redelivery.Option) *redelivery.Consumer {
	t.Helper()
	c, err := redelivery.Subscribe(client,
		pulsar.ConsumerOptions{Topic: topic, SubscriptionName: subscription, Type: pulsar.Shared,
			SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
			DLQ:                         &pulsar.DLQPolicy{MaxDeliveries: 2}},
		append(options, redelivery.WithLogger(logtest.Logger(t)),
			redelivery.WithNackRedeliveryDelay(20*time.Millisecond))...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// value adds up those series of a metric that have all the labels, each given as "name=value", and returns the sum and
// how many series these are. The value of a histogram's series is its count.
func value(t testing.TB, reg *prometheus.Registry, name string, labels ...string) (sum float64, series int) {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	next:
		for _, m := range f.GetMetric() {
			has := map[string]bool{}
			for _, l := range m.GetLabel() {
				has[l.GetName()+"="+l.GetValue()] = true
			}
			for _, l := range labels {
				if !has[l] {
					continue next
				}
			}
			series++
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum, series
}

// withAndWithoutTopic runs a test twice: without and with the label topic.
func withAndWithoutTopic(t *testing.T,
	test func(t *testing.T, byTopic bool, reg *prometheus.Registry, m *metrics.Metrics)) {
	t.Helper()
	for _, byTopic := range []bool{false, true} {
		t.Run(fmt.Sprintf("topic=%v", byTopic), func(t *testing.T) {
			var options []metrics.Option
			if byTopic {
				options = append(options, metrics.WithTopic())
			}
			reg := prometheus.NewRegistry()
			m, err := metrics.New(reg, options...)
			require.NoError(t, err)
			test(t, byTopic, reg, m)
		})
	}
}

// One Worker gets four messages. Its handler succeeds with the first, fails permanently with the second, fails with the
// third, and blocks with the fourth.
func TestMetricsCountWhatHappensToFourMessages(t *testing.T) {
	withAndWithoutTopic(t, func(t *testing.T, byTopic bool, reg *prometheus.Registry, m *metrics.Metrics) {
		client := newClient(t)
		c := subscribe(t, client, "orders", "billing", m.Observe())
		blocked, release := make(chan struct{}), make(chan struct{})
		var once sync.Once
		w, err := worker.New(c, func(_ context.Context, msg pulsar.Message) error {
			switch string(msg.Payload()) {
			case "permanent":
				return worker.Permanent(errors.New("never"))
			case "fails":
				return errors.New("not now")
			case "blocks":
				once.Do(func() { close(blocked) })
				<-release
			}
			return nil
		}, m.ObserveWorker(), worker.WithConcurrency(2), worker.WithLogger(silent))
		require.NoError(t, err)
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		send(t, client, "orders", "good", "permanent", "fails", "blocks")
		waittest.Next(t, blocked)
		topic := ""
		if byTopic {
			topic = "topic=persistent://public/default/orders"
		}
		expect := func(want float64, name string, labels ...string) {
			t.Helper()
			if topic != "" && !strings.Contains(name, "active") && !strings.HasPrefix(name, "redelivery_paused") {
				labels = append(labels, topic)
			}
			assert.EventuallyWithT(t, func(c *assert.CollectT) {
				got, _ := value(t, reg, name, append(labels, "subscription=billing")...)
				assert.InDelta(c, want, got, 0, "%s %v", name, labels)
			}, 10*time.Second, 10*time.Millisecond)
		}
		expect(1, "redelivery_settled_total", "outcome=acked")
		expect(1, "redelivery_settled_total", "outcome=nacked")
		expect(2, "redelivery_settled_total", "outcome=dead_lettered")
		expect(0, "redelivery_settled_total", "outcome=timed_out")
		expect(1, "redelivery_dead_letters_total", "reason=permanent")
		expect(1, "redelivery_dead_letters_total", "reason=max_deliveries")
		expect(0, "redelivery_dead_letters_total", "reason=explicit")
		expect(0, "redelivery_dead_letters_total", "reason=crashed")
		expect(1, "redelivery_redelivered_total", "cause=nack")
		expect(1, "redelivery_lateness_seconds", "cause=nack")
		expect(2, "redelivery_attempts", "outcome=dead_lettered")
		expect(2, "redelivery_handler_duration_seconds", "outcome=nacked")
		expect(1, "redelivery_handler_duration_seconds", "outcome=dead_lettered")
		expect(0, "redelivery_failures_total")
		expect(0, "redelivery_swallowed_total")
		expect(0, "redelivery_dropped_total")
		expect(1, "redelivery_handlers_active")
		expect(0, "redelivery_paused")
		w.Pause()
		expect(1, "redelivery_paused")
		w.Resume()
		expect(0, "redelivery_paused")
		close(release)
		expect(0, "redelivery_handlers_active")
		stop()
		require.NoError(t, waittest.Next(t, done))
		c.Nack(nil)
		topic = ""
		expect(1, "redelivery_failures_total", "operation=nack")

		problems, err := testutil.GatherAndLint(reg)
		require.NoError(t, err)
		assert.Equal(t, []promlint.Problem(nil), problems)
		c.Close()
		for _, gauge := range []string{"waiting_messages", "buffered_bytes", "oldest_waiting_seconds",
			"handlers_active", "paused", "outage",
			"memory_limit_reached", "blocked", "unfinished_messages"} {
			_, series := value(t, reg, "redelivery_"+gauge)
			assert.Zero(t, series, "%s is left after Close", gauge)
		}
	})
}

func TestAttemptLogThatCannotBeOpenedIsCountedAsFailure(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := metrics.New(reg)
	require.NoError(t, err)
	server := pulsartest.NewServer(t)
	server.Inject("PRODUCER", "orders-billing-ATTEMPTS", 100, pulsartest.Fail("AuthorizationError", "not you"))
	subscribe(t, server.Client(t), "orders", "billing", m.Observe(),
		redelivery.WithAttemptLog(redelivery.AttemptLog{Optional: true, OpenTimeout: 100 * time.Millisecond}))
	require.Eventually(t, func() bool {
		failed, _ := value(t, reg, "redelivery_failures_total", "subscription=billing", "operation=attempt_log")
		return failed > 0
	}, 10*time.Second, 10*time.Millisecond)
}

// The series exists from the start, so that even the first failure is an increase.
func TestEachTopicGivenUpCountsAsOneFailure(t *testing.T) {
	withAndWithoutTopic(t, func(t *testing.T, byTopic bool, reg *prometheus.Registry, m *metrics.Metrics) {
		t.Parallel()
		server, once := pulsartest.NewServer(t), uint(1)
		c, err := redelivery.Subscribe(server.Client(t),
			pulsar.ConsumerOptions{Topics: []string{"orders", "bills"}, SubscriptionName: "billing",
				Type: pulsar.Shared, MaxReconnectToBroker: &once}, m.Observe(), redelivery.WithLogger(silent))
		require.NoError(t, err)
		defer c.Close()
		failed := func() float64 {
			n, series := value(t, reg, "redelivery_failures_total", "subscription=billing", "operation=receive")
			assert.Equal(t, 1, series)
			return n
		}
		assert.Zero(t, failed())
		for i, topic := range []string{"orders", "bills"} {
			server.Inject("SUBSCRIBE", topic, 100, pulsartest.Fail("AuthorizationError", "not you"))
			server.Unload(topic)
			require.Eventually(t, func() bool { return failed() == float64(i+1) }, 20*time.Second, 10*time.Millisecond)
		}
		waittest.Next(t, c.Done())
	})
}

func TestObservedWorkerOfAnUnobservedConsumerExportsOnlyHandlerDurations(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := metrics.New(reg)
	require.NoError(t, err)
	client := newClient(t)
	send(t, client, "orders", "good")
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	w, err := worker.New(subscribe(t, client, "orders", "billing"),
		func(context.Context, pulsar.Message) error { stop(); return nil },
		m.ObserveWorker(), worker.WithConcurrency(1), worker.WithLogger(silent))
	require.NoError(t, err)
	w.Pause()
	w.Resume()
	require.NoError(t, w.Run(ctx))
	handled, _ := value(t, reg, "redelivery_handler_duration_seconds", "subscription=billing", "outcome=acked")
	assert.EqualValues(t, 1, handled)
	n, err := testutil.GatherAndCount(reg)
	require.NoError(t, err)
	assert.Equal(t, 1, n, "series")
}

func TestWaitingGaugesAreSumsOverTheConsumersOfASubscription(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := metrics.New(reg)
	require.NoError(t, err)
	client := newClient(t)
	var consumers []*redelivery.Consumer
	for _, topic := range []string{"a", "b"} {
		c := subscribe(t, client, topic, "s", m.Observe(), redelivery.WithRedeliveryFrom(redelivery.FromMemory))
		consumers = append(consumers, c)
		send(t, client, topic, "one", "two")
		for range 2 {
			msg, err := c.Receive(waittest.Context(t))
			require.NoError(t, err)
			require.NoError(t, c.NackWithDelay(msg, time.Hour))
		}
	}
	time.Sleep(20 * time.Millisecond)
	waiting, series := value(t, reg, "redelivery_waiting_messages")
	assert.EqualValues(t, 4, waiting)
	assert.Equal(t, 1, series)
	ready, _ := value(t, reg, "redelivery_ready_messages")
	assert.Zero(t, ready)
	buffered, _ := value(t, reg, "redelivery_buffered_bytes")
	assert.GreaterOrEqual(t, buffered, 4*512.0)
	oldest, _ := value(t, reg, "redelivery_oldest_waiting_seconds")
	assert.GreaterOrEqual(t, oldest, 0.02)
	assert.Less(t, oldest, 60.0)
	for _, c := range consumers {
		require.Equal(t, 2, c.RedeliverNow())
	}
	waiting, _ = value(t, reg, "redelivery_waiting_messages")
	assert.EqualValues(t, 4, waiting)
	ready, _ = value(t, reg, "redelivery_ready_messages")
	assert.EqualValues(t, 4, ready)
}

// Two parts of a program may both call New with one registry.
func TestNewReturnsTheMetricsThatARegistryHas(t *testing.T) {
	reg := prometheus.NewRegistry()
	first, err := metrics.New(reg)
	require.NoError(t, err)
	second, err := metrics.New(reg)
	require.NoError(t, err)
	assert.Same(t, first, second)
	_, err = metrics.New(reg, metrics.WithTopic())
	assert.Error(t, err, "New accepted a registry whose Metrics have other labels")
	wrapped := prometheus.WrapRegistererWith(prometheus.Labels{"app": "shop"}, prometheus.NewRegistry())
	first, err = metrics.New(wrapped)
	require.NoError(t, err)
	second, err = metrics.New(wrapped)
	require.NoError(t, err)
	assert.Same(t, first, second)
}

func TestNewRefusesNilRegistererAndNilOption(t *testing.T) {
	_, err := metrics.New(nil)
	require.ErrorIs(t, err, redelivery.ErrInvalidOption)
	_, err = metrics.New((*prometheus.Registry)(nil))
	require.ErrorIs(t, err, redelivery.ErrInvalidOption)
	_, err = metrics.New(prometheus.NewRegistry(), nil)
	require.ErrorIs(t, err, redelivery.ErrInvalidOption)
}

// 100 Consumers of 20 subscriptions receive from one topic of 1,000 partitions. Only the number of subscriptions
// counts, and with WithTopic the number of topics, too.
func TestSeriesDoNotGrowWithConsumersOrPartitions(t *testing.T) {
	const consumers, subscriptions, partitions = 100, 20, 1000
	for _, c := range []struct {
		options []metrics.Option
		want    int // series
	}{
		{nil, subscriptions * seriesPerSubscription},
		{[]metrics.Option{metrics.WithTopic()}, subscriptions * seriesPerSubscription},
	} {
		reg := prometheus.NewRegistry()
		m, err := metrics.New(reg, c.options...)
		require.NoError(t, err)
		for i := range consumers {
			inner := newFakeConsumer(fmt.Sprintf("sub-%d", i%subscriptions))
			consumer, err := redelivery.Wrap(inner, m.Observe(), redelivery.WithLogger(silent))
			require.NoError(t, err)
			defer consumer.Close()
			for p := i; p < partitions*subscriptions; p += consumers { // each subscription has all partitions
				inner.ch <- pulsar.ConsumerMessage{Consumer: inner, Message: message{
					topic: fmt.Sprintf("persistent://a/b/c-partition-%d", p/subscriptions),
					id:    pulsar.NewMessageID(int64(p), 0, 0, 0)}}
				msg, err := consumer.Receive(waittest.Context(t))
				require.NoError(t, err)
				if p/consumers%2 == 0 {
					require.NoError(t, consumer.Ack(msg))
				} else {
					require.NoError(t, consumer.NackWithDelay(msg, time.Hour))
				}
			}
		}
		settled, _ := value(t, reg, "redelivery_settled_total")
		assert.EqualValues(t, subscriptions*partitions, settled)
		got, err := testutil.GatherAndCount(reg)
		require.NoError(t, err)
		assert.Equal(t, c.want, got, "series, histograms counted as one")
		t.Logf("%d consumers, %d partitions: %d series, histograms counted as one", consumers, partitions, got)
	}
}

// Pulsar accepts names that are not UTF-8. As a label, such a name would make Prometheus panic, even in the goroutine
// of a scrape.
func TestNamesThatAreNotUTF8AreRepaired(t *testing.T) {
	withAndWithoutTopic(t, func(t *testing.T, byTopic bool, reg *prometheus.Registry, m *metrics.Metrics) {
		labels := []string{"subscription=billing\uFFFD"}
		if byTopic {
			labels = append(labels, "topic=persistent://public/default/orders\uFFFD")
		}
		client := newClient(t)
		c := subscribe(t, client, "orders\xff", "billing\xff", m.Observe())
		send(t, client, "orders\xff", "one")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w, err := worker.New(c, func(context.Context, pulsar.Message) error {
			cancel()
			return nil
		}, m.ObserveWorker(), worker.WithLogger(silent))
		require.NoError(t, err)
		require.NoError(t, w.Run(ctx))
		for _, name := range []string{"redelivery_settled_total", "redelivery_handler_duration_seconds"} {
			n, _ := value(t, reg, name, append(labels, "outcome=acked")...)
			assert.EqualValues(t, 1, n, name)
		}
		_, gauges := value(t, reg, "redelivery_waiting_messages", labels[0])
		assert.Equal(t, 1, gauges)
		assert.Zero(t, c.Stats().Failed, "callbacks that failed")
	})
}
