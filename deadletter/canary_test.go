package deadletter_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

// consume starts a consumer of a topic. If to returns a topic for a message, the consumer publishes a copy of the
// message to that topic. Then it acknowledges the message.
func (b *broker) consume(t *testing.T, topic string,
	to func(n int, msg pulsar.Message) string) (stop func() (consumed int)) {
	ctx, cancel := context.WithCancel(bg)
	c := b.subscribe(topic, sub)
	n := 0
	var done sync.WaitGroup
	done.Go(func() {
		defer c.Close()
		for {
			msg, err := c.Receive(ctx)
			if err != nil {
				return
			}
			n++
			if to := to(n, msg); to != "" {
				m := &pulsar.ProducerMessage{Payload: msg.Payload(), Key: msg.Key(),
					Properties: maps.Clone(msg.Properties())}
				m.Properties["RECONSUMETIMES"] = "1"
				b.publish(pulsar.ProducerOptions{Topic: to}, 1, m)
			}
			_ = c.Ack(msg)
		}
	})
	return func() int {
		cancel()
		done.Wait()
		return n
	}
}

func TestCanaryThatDiesAgainStopsTheReplay(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	for name, c := range map[string]struct {
		fate func(tp topics, n int, msg pulsar.Message) string
		want error
	}{
		"processed": {fate: func(topics, int, pulsar.Message) string { return "" }},
		"processed after a retry": {fate: func(tp topics, _ int, msg pulsar.Message) string {
			if msg.Properties()["RECONSUMETIMES"] == "0" {
				return tp.retry
			}
			return ""
		}},
		"dead again": {want: deadletter.ErrPoison, fate: func(tp topics, n int, _ pulsar.Message) string {
			if n == 7 {
				return tp.dlq
			}
			return ""
		}},
		"dead after a retry": {want: deadletter.ErrPoison, fate: func(tp topics, _ int, msg pulsar.Message) string {
			if msg.Properties()["RECONSUMETIMES"] == "0" {
				return tp.retry
			}
			return tp.dlq
		}},
	} {
		for _, partitions := range []int{0, 2} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				tp := b.topics(partitions)
				b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 5, tp.letters(100)...)
				stop := b.consume(t, tp.retry, func(n int, msg pulsar.Message) string { return c.fate(tp, n, msg) })
				waited := 0
				report, err := b.open(tp.dlq).Replay(bg,
					deadletter.ReplayOptions{Canary: 10,
						Progress: func(r deadletter.Report) { waited = max(waited, r.Waiting) }})
				if c.want == nil {
					require.NoError(t, err)
					require.Eventually(t, func() bool { return b.backlog(tp.retry, sub) == 0 }, 2*time.Minute,
						100*time.Millisecond)
				}
				time.Sleep(time.Second)
				consumed := stop()
				if c.want == nil {
					require.Equal(t, 100, report.Done)
					require.GreaterOrEqual(t, consumed, 100)
					return
				}
				require.ErrorIs(t, err, c.want)
				require.Equal(t, 10, report.Done)
				require.LessOrEqual(t, consumed, 20)
			})
		}
	}
}

func TestReplayWaitsUntilTheCanaryIsAcknowledged(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(30)...)
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	waits := 0
	report, err := b.open(tp.dlq).Replay(ctx, deadletter.ReplayOptions{Canary: 10, Progress: func(r deadletter.Report) {
		if r.Waiting == 10 {
			waits++
		}
		if waits == 4 {
			cancel()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 10, report.Done)
	require.Equal(t, 10, report.Waiting)
	require.Equal(t, 20, b.backlog(tp.dlq, own))
}

// The report of the waiting replay names the subscription that must acknowledge the canary. The replay waits only for
// CanaryTimeout.
func TestCanaryWithoutConsumerIsReported(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(2)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(9)...)
	d := b.open(tp.dlq)
	o := deadletter.ReplayOptions{Canary: 3, CanaryTimeout: 2 * time.Second}
	plan, err := d.Replay(bg, dry(o))
	require.NoError(t, err)
	require.Equal(t, map[string]int{sub: 0}, plan.Targets[0].Consumers)
	said := ""
	o.Progress = func(r deadletter.Report) { said = r.WaitsFor }
	waitsFor := "subscription " + sub + " of " + tp.retry + ", which has no consumer"
	report, err := d.Replay(bg, o)
	require.ErrorIs(t, err, deadletter.ErrUnprocessed)
	require.ErrorContains(t, err, "within 2s: 3 messages wait for "+waitsFor)
	require.Equal(t, waitsFor, said)
	require.Equal(t, 3, report.Done)

	c := b.subscribe(tp.retry, sub)
	report, err = d.Replay(bg, o)
	c.Close()
	require.ErrorIs(t, err, deadletter.ErrUnprocessed)
	require.ErrorContains(t, err, "which has 1 consumer")
	require.Zero(t, report.Done)

	stop := b.consume(t, tp.retry, func(int, pulsar.Message) string { return "" })
	report, err = d.Replay(bg, deadletter.ReplayOptions{Canary: 3})
	require.NoError(t, err)
	require.Equal(t, 6, report.Done)
	require.Empty(t, report.WaitsFor)
	stop()
}

// canary begins a replay with a canary of three letters, and interrupts the replay when it waits for the canary.
func (b *broker) canary(tp topics) (deadletter.Report, error) {
	ctx, cancel := context.WithTimeout(bg, 30*time.Second)
	defer cancel()
	return b.open(tp.dlq).Replay(ctx, deadletter.ReplayOptions{Canary: 3, Progress: func(r deadletter.Report) {
		if r.Waiting > 0 {
			cancel()
		}
	}})
}

// The first Replay after the death reports it. The next Replay sends another canary.
func TestCanaryThatDiesBetweenTwoReplaysIsReportedOnce(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(2)
	b.subscribe(tp.dlq, "audit").Close()
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(50)...)
	for range 2 {
		report, err := b.canary(tp)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 3, report.Done)
		report, err = b.canary(tp)
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, report.Done, "the canary was sent again")
		require.Equal(t, 3, report.Waiting)
		for _, msg := range b.receive(tp.retry) {
			b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1,
				&pulsar.ProducerMessage{Payload: msg.Payload(), Properties: msg.Properties()})
		}
		report, err = b.canary(tp)
		require.ErrorIs(t, err, deadletter.ErrPoison)
		require.Zero(t, report.Done)
	}
}

func TestReplayContinuesIfTheCanaryWasProcessedMeanwhile(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(2)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(20)...)
	_, err := b.canary(tp)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, b.receive(tp.retry), 3)
	report, err := b.open(tp.dlq).Replay(bg, deadletter.ReplayOptions{Canary: 3})
	require.NoError(t, err)
	require.Equal(t, 17, report.Done)
}

// The replay is continued after its last letter was acknowledged. It is over, and does not report that letter as
// missing.
func TestReplayIsOverIfItsCanaryOfAllLettersWasProcessedMeanwhile(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	for _, batch := range []int{1, 3} {
		tp := b.topics(0)
		b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, batch, tp.letters(6)...)
		d := b.open(tp.dlq)
		o := deadletter.ReplayOptions{Canary: 6, Max: 100, CanaryTimeout: time.Second}
		_, err := d.Replay(bg, o)
		require.ErrorIs(t, err, deadletter.ErrUnprocessed)
		require.Len(t, b.receive(tp.retry), 6)
		report, err := d.Replay(bg, o)
		require.NoError(t, err)
		require.True(t, report.Resumed)
		require.Zero(t, report.Done)
		require.Empty(t, report.Left)
	}
}
