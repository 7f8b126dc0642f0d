package deadletter_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/doctor"
)

// A service with retries, dead letters and a log of attempts works whatever topics its namespace lets the broker
// create, and with its letters in a namespace of their own: each message is a letter after its retries, is replayed,
// and is processed.
func TestServiceInNamespacesOfAllKinds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy map[string]any
		apart  bool
	}{
		"topics are created partitioned":      {policy: creations["partitioned"]},
		"no topics are created":               {policy: creations["off"]},
		"letters in a namespace of their own": {apart: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := real(t)
			if c.policy != nil {
				b.creates(c.policy)
			}
			namespace := b.namespace
			tp := b.topics(0)
			if c.apart {
				tp, namespace = b.apart(0)
			}
			log := tp.origin + "-" + sub + "-ATTEMPTS"
			if name == "no topics are created" {
				b.create(log, 0)
			}
			const n = 6
			consumer, err := redelivery.Subscribe(b.client, pulsar.ConsumerOptions{Topic: tp.origin, SubscriptionName: sub, Type: pulsar.Shared, RetryEnable: true,
				DLQ: &pulsar.DLQPolicy{MaxDeliveries: 2, RetryLetterTopic: tp.retry, DeadLetterTopic: tp.dlq, InitialSubscriptionName: "inspect"}},
				redelivery.WithNackRedeliveryDelay(100*time.Millisecond), redelivery.WithReconsumeBackoff(backoff.Fixed(100*time.Millisecond)),
				redelivery.WithAttemptLog(redelivery.AttemptLog{}), redelivery.WithLogger(slog.New(slog.DiscardHandler)))
			require.NoError(t, err)
			defer consumer.Close()
			b.publish(pulsar.ProducerOptions{Topic: tp.origin}, 3, tp.orders(n)...)
			d := b.open(tp.dlq, func(o *deadletter.Options) { o.Subscription = "inspect" })
			deadline := time.After(time.Minute)
			for retried, dead := 0, false; !dead; { // each is retried once, then nacked until it is a letter
				select {
				case msg := <-consumer.Chan():
					if _, ok := msg.Properties()["RECONSUMETIMES"]; !ok {
						consumer.ReconsumeLater(msg.Message, 100*time.Millisecond)
						retried++
						break
					}
					consumer.NackWithReason(msg.Message, errors.New("no stock"))
				case <-time.After(time.Second):
					dead = b.backlog(tp.dlq, "inspect") > 0 && len(peek(t, d)) == n
				case <-deadline:
					t.Fatalf("%d letters after %d retries", len(peek(t, d)), retried)
				}
			}
			require.NotEmpty(t, consumer.AttemptLog().Sessions())
			for _, f := range doctor.Examine(t.Context(), doctor.Setup{Admin: doctor.Admin{URL: b.admin}, Client: b.client, Topic: tp.origin, Subscription: sub}) {
				require.NotContains(t, f.Found, "404", f.Check)
			}
			report, err := d.Replay(bg, deadletter.ReplayOptions{Namespaces: []string{namespace}})
			require.NoError(t, err)
			require.Equal(t, n, report.Done)
			require.Equal(t, tp.retry, report.Targets[0].Topic)
			require.Zero(t, b.backlog(tp.dlq, "inspect"))
			for range n {
				select {
				case msg := <-consumer.Chan():
					require.NoError(t, consumer.Ack(msg.Message))
				case <-time.After(time.Minute):
					t.Fatal("a replayed letter did not come")
				}
			}
			b.noJournal(tp)
		})
	}
}

// orders are messages that have not failed yet.
func (t topics) orders(n int) (all []*pulsar.ProducerMessage) {
	for _, l := range t.letters(n) {
		all = append(all, &pulsar.ProducerMessage{Payload: l.Payload})
	}
	return all
}
