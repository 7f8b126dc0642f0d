package retry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

const killed = "REDELIVERY_TEST_KILLED"

// Processes are killed at random moments while their messages become retries or dead letters. A message that was
// published but not acknowledged comes again, and another process publishes it a second time.
func TestKillWhilePublishingLosesNothing(t *testing.T) {
	if how := os.Getenv(killed); how != "" {
		toBeKilled(t, strings.Fields(how))
		return
	}
	t.Parallel()
	for _, how := range []string{"reconsume", "dead", "move"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			const n = 300 // messages in each case
			kills := 3
			if *testkit.Long || testkit.HasRealBroker() {
				kills = 10
			}
			topic := b.NewTopic(0)
			keeper := b.Subscribe(b.Options(topic, pulsar.Shared))
			keeper.Close() // creates the subscription
			published := map[string]string{"reconsume": testkit.RetryTopic(topic),
				"dead": testkit.DeadLetterTopic(topic), "move": testkit.RetryTopic(topic)}[how]
			out := subscribeReader(b, published)
			want := map[string]bool{}
			for run := range kills {
				var msgs []*pulsar.ProducerMessage
				for i := range n {
					payload := fmt.Sprintf("%d-%d", run, i)
					want[payload] = true
					msgs = append(msgs, &pulsar.ProducerMessage{Payload: []byte(payload), Key: fmt.Sprint(i % 10)})
				}
				b.Publish(pulsar.ProducerOptions{Topic: topic}, msgs...)
				child, _ := testkit.StartProcess(t, "TestKillWhilePublishingLosesNothing",
					fmt.Sprintf("%s=%s %s %s %d", killed, how, b.URL, topic, run))
				time.Sleep(rand.N(60 * time.Millisecond))
				testkit.Kill(t, child)
			}
			last := publishes(t, b.Client, how, topic, "last")
			defer last.Close()
			require.Eventually(t, func() bool { return b.Stats(topic, 0).Backlog == 0 }, 2*time.Minute,
				50*time.Millisecond)
			seen, doubles := map[string]map[string]bool{}, 0
			for {
				quiet := waittest.Limit
				if len(seen) == len(want) {
					quiet = 2 * time.Second
				}
				ctx, cancel := context.WithTimeout(t.Context(), quiet)
				msg, err := out.Receive(ctx)
				if cancel(); err != nil {
					break
				}
				payload, by := string(msg.Payload()), msg.ProducerName()
				if how == "reconsume" {
					by = msg.Properties()["by"]
				}
				if seen[payload] == nil {
					seen[payload] = map[string]bool{}
				} else {
					doubles++
				}
				require.False(t, seen[payload][by], "%s was published twice by process %s", payload, by)
				seen[payload][by] = true
			}
			for payload := range want {
				require.NotEmpty(t, seen[payload], "%s is lost", payload)
			}
			t.Logf("%s: %d kills, %d messages, 0 lost, %d published by two processes", how, kills, len(want), doubles)
		})
	}
}

// publishes returns a Consumer that publishes every message that it gets.
func publishes(t *testing.T, client pulsar.Client, how, topic, by string) *redelivery.Consumer {
	opts := pulsar.ConsumerOptions{Topic: topic, SubscriptionName: testkit.Subscription, Type: pulsar.Shared,
		RetryEnable: how != "dead",
		DLQ:         &pulsar.DLQPolicy{MaxDeliveries: 100}}
	options := []redelivery.Option{redelivery.WithLogger(slog.New(slog.DiscardHandler))}
	switch how {
	case "dead":
		opts.DLQ.MaxDeliveries = 1
	case "move":
		options = append(options, redelivery.WithNackRetryTopic(time.Minute),
			redelivery.WithNackRedeliveryDelay(time.Hour))
	}
	c, err := redelivery.Subscribe(client, opts, options...)
	require.NoError(t, err)
	go func() {
		for first := true; ; first = false {
			msg, err := c.Receive(context.Background())
			if err != nil {
				return
			}
			if first && by != "last" {
				fmt.Println("begun")
			}
			switch {
			case how == "reconsume":
				c.ReconsumeLaterWithCustomProperties(msg, map[string]string{"by": by}, time.Hour)
			default:
				_ = c.NackWithReason(msg, errors.New("no"))
			}
		}
	}()
	return c
}

// toBeKilled publishes messages until the test kills this process.
func toBeKilled(t *testing.T, how []string) {
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: how[1], Logger: logtest.Client(t)})
	require.NoError(t, err)
	publishes(t, client, how[0], how[2], how[3])
	_, _ = io.Copy(io.Discard, os.Stdin)
	time.Sleep(time.Minute)
}
