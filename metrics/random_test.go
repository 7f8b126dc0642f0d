package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/metrics"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// application settles messages at random, and counts what it did.
type application struct {
	*redelivery.Consumer
	t   *testing.T
	rng *rand.Rand

	open      int            // messages that are neither acknowledged nor dead letters
	attempts  map[string]int // by payload
	next      map[string]redelivery.Cause
	outcomes  map[redelivery.Outcome]int
	histogram map[redelivery.Outcome]int // attempts of the messages with this outcome
	causes    map[redelivery.Cause]int
	reasons   map[redelivery.Reason]int
}

// Single messages and batches are acknowledged in three ways, nacked, snoozed, left to the ack timeout, moved to the
// retry topic and given up, at random.
func TestMetricsOfRandomRunsAreWhatTheApplicationDid(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			testRandomRun(t, seed)
		})
	}
}

func testRandomRun(t *testing.T, seed uint64) {
	const messages = 40
	reg := prometheus.NewRegistry()
	m, err := metrics.New(reg)
	require.NoError(t, err)
	var options []pulsartest.Option
	if seed%2 == 0 {
		options = append(options, pulsartest.WithBatchIndexAcknowledgment())
	}
	client := pulsartest.NewServer(t, options...).Client(t)
	c, err := redelivery.Subscribe(client,
		pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing", Type: pulsar.Shared, RetryEnable: true,
			DLQ: &pulsar.DLQPolicy{MaxDeliveries: 4}},
		m.Observe(), redelivery.WithLogger(silent), redelivery.WithNackRedeliveryDelay(5*time.Millisecond),
		redelivery.WithAckTimeout(time.Second))
	require.NoError(t, err)
	defer c.Close()
	p, err := client.CreateProducer(pulsar.ProducerOptions{Topic: "orders", BatchingMaxMessages: 7})
	require.NoError(t, err)
	for i := range messages {
		p.SendAsync(t.Context(), &pulsar.ProducerMessage{Payload: fmt.Append(nil, i)},
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { assert.NoError(t, err) })
		if seed%4 < 2 { // no batches
			require.NoError(t, p.FlushWithCtx(t.Context()))
		}
	}
	require.NoError(t, p.FlushWithCtx(t.Context()))
	a := &application{Consumer: c, t: t, rng: rand.New(rand.NewPCG(seed, 1)), open: messages,
		attempts: map[string]int{}, next: map[string]redelivery.Cause{}, outcomes: map[redelivery.Outcome]int{},
		histogram: map[redelivery.Outcome]int{}, causes: map[redelivery.Cause]int{},
		reasons: map[redelivery.Reason]int{}}
	for a.open > 0 {
		msg, err := c.Receive(waittest.Context(t))
		require.NoError(t, err)
		require.NoError(t, a.handle(msg))
	}
	for _, o := range []redelivery.Outcome{redelivery.Acked, redelivery.Nacked, redelivery.Snoozed,
		redelivery.TimedOut, redelivery.Reconsumed, redelivery.DeadLettered} {
		require.Eventually(t, func() bool {
			n, _ := value(t, reg, "redelivery_settled_total", "outcome="+string(o))
			return n >= float64(a.outcomes[o])
		}, 10*time.Second, 10*time.Millisecond, o)
	}
	a.check(reg)
}

// check compares all metrics with what the application did.
func (a *application) check(reg *prometheus.Registry) {
	expect := func(want int, name string, labels ...string) {
		got, _ := value(a.t, reg, "redelivery_"+name, labels...)
		assert.InDelta(a.t, want, got, 0, "%s %v", name, labels)
	}
	for o, n := range a.outcomes {
		expect(n, "settled_total", "outcome="+string(o))
		assert.InDelta(a.t, a.histogram[o], sumOf(a.t, reg, "redelivery_attempts", "outcome", string(o)), 0, o)
	}
	for cause, n := range a.causes {
		expect(n, "redelivered_total", "cause="+string(cause))
		expect(n, "lateness_seconds", "cause="+string(cause))
	}
	for reason, n := range a.reasons {
		expect(n, "dead_letters_total", "reason="+string(reason))
	}
	for _, name := range []string{"failures_total", "losses_total", "waiting_messages", "ready_messages",
		"buffered_bytes", "oldest_waiting_seconds", "unfinished_messages"} {
		expect(0, name)
	}
}

// sumOf returns the sum of the observations of a histogram.
func sumOf(t *testing.T, reg *prometheus.Registry, name, label, value string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetName() == label && l.GetValue() == value {
					sum += m.GetHistogram().GetSampleSum()
				}
			}
		}
	}
	return sum
}

// handle settles a message at random.
func (a *application) handle(msg pulsar.Message) error {
	id := string(msg.Payload())
	if cause := a.next[id]; cause != "" {
		a.causes[cause]++
	}
	a.attempts[id]++
	d, err := a.Delivery(msg)
	require.NoError(a.t, err)
	assert.EqualValues(a.t, a.attempts[id], d.Attempt)
	switch a.rng.IntN(10) {
	case 0:
		a.note(id, redelivery.Acked)
		return a.AckID(msg.ID())
	case 1:
		a.note(id, redelivery.Acked)
		return a.AckIDList([]pulsar.MessageID{msg.ID()})
	case 2, 3:
		a.fail(id, d.Last, redelivery.Nacked, redelivery.CauseNack)
		return a.NackWithDelay(msg, time.Duration(a.rng.IntN(20))*time.Millisecond)
	case 4:
		a.note(id, redelivery.Snoozed)
		a.attempts[id]--
		a.next[id] = redelivery.CauseNack
		return a.Snooze(msg, time.Duration(a.rng.IntN(20))*time.Millisecond)
	case 5:
		a.fail(id, d.Last, redelivery.TimedOut, redelivery.CauseTimeout)
		return nil
	case 6, 7:
		isLast := msg.Properties()[pulsar.SysPropertyReconsumeTimes] == "4"
		a.fail(id, isLast, redelivery.Reconsumed, redelivery.CauseRetryTopic)
		return a.ReconsumeLaterAfter(a.t.Context(), msg, 0, nil)
	case 8:
		a.reasons[redelivery.ReasonExplicit]++
		a.note(id, redelivery.DeadLettered)
		return a.DeadLetter(context.Background(), msg, errors.New("explicit"))
	default:
		a.note(id, redelivery.Acked)
		return a.Ack(msg)
	}
}

// fail notes a failure, after which the message becomes a dead letter if no delivery is left.
func (a *application) fail(id string, isLast bool, o redelivery.Outcome, next redelivery.Cause) {
	if isLast {
		a.reasons[redelivery.ReasonMaxDeliveries]++
		o = redelivery.DeadLettered
	}
	a.next[id] = next
	a.note(id, o)
}

func (a *application) note(id string, o redelivery.Outcome) {
	a.outcomes[o]++
	a.histogram[o] += a.attempts[id]
	if o == redelivery.Acked || o == redelivery.DeadLettered {
		a.open--
	}
}
