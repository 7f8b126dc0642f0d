package receive

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// Failing messages and new messages share the application's time.
func TestFailingMessagesDoNotStarveOthers(t *testing.T) {
	t.Parallel()
	const bad, all, work = 120, 320, 10 * time.Millisecond // to handle all bad ones takes longer than their delay
	for _, kind := range []string{"KeyShared", "Exclusive"} {
		for _, way := range []string{"Receive", "Chan", "plain"} {
			t.Run(kind+" "+way, func(t *testing.T) {
				t.Parallel()
				b := testkit.NewBroker(t)
				opts := b.Options(b.NewTopic(0), testkit.SubscriptionTypes[kind])
				opts.NackRedeliveryDelay = time.Second
				b.Send(opts.Topic, all, false)
				var c pulsar.Consumer
				take := func(ctx context.Context) (pulsar.Message, error) { return c.Receive(ctx) }
				if way == "plain" {
					c = b.SubscribePlain(opts)
				} else {
					wrapped := b.Subscribe(opts)
					c, take = wrapped, func(ctx context.Context) (pulsar.Message, error) { return testkit.Take(ctx, wrapped, way == "Chan") }
				}
				// If good messages starved, they would not come within a minute.
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				begin, good, failed := time.Now(), map[int]bool{}, 0
				for len(good) < all-bad {
					msg, err := take(ctx)
					require.NoError(t, err, "%d of %d good messages came, while bad ones came %d times", len(good),
						all-bad, failed)
					time.Sleep(work)
					i, _ := strconv.Atoi(string(msg.Payload()))
					if i < bad {
						failed++
						c.Nack(msg)
						continue
					}
					good[i] = true
					require.NoError(t, c.Ack(msg))
				}
				t.Logf("all good messages came within %v; bad ones failed %d times", time.Since(begin), failed)
			})
		}
	}
}

// The message must overtake the backlog even if it comes back from the broker.
func TestDueMessageOvertakesTheBacklog(t *testing.T) {
	t.Parallel()
	const n, delay, work = 400, 100 * time.Millisecond, 10 * time.Millisecond
	nacks := map[string]func(*redelivery.Consumer, pulsar.Message){
		"Nack":          (*redelivery.Consumer).Nack,
		"NackWithDelay": func(c *redelivery.Consumer, msg pulsar.Message) { _ = c.NackWithDelay(msg, delay) },
	}
	for name, nack := range nacks {
		for _, channel := range []bool{false, true} {
			t.Run(name+" Chan="+strconv.FormatBool(channel), func(t *testing.T) {
				t.Parallel()
				b := testkit.NewBroker(t)
				topic := b.NewTopic(0)
				b.Send(topic, n, false)
				var options []redelivery.Option
				if name == "Nack" {
					options = append(options, redelivery.WithNackRedeliveryDelay(delay))
				}
				c := b.Subscribe(b.Options(topic, pulsar.Shared), options...)
				ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
				defer cancel()
				var due time.Time
				for handled := 0; ; handled++ {
					msg, err := testkit.Take(ctx, c, channel)
					require.NoError(t, err)
					if string(msg.Payload()) == "10" {
						if !due.IsZero() {
							late := time.Since(due)
							t.Logf("late by %v", late)
							require.GreaterOrEqual(t, late, time.Duration(0), "early")
							require.Less(t, handled, n/2, "messages that were handled first")
							return
						}
						due = time.Now().Add(delay)
						nack(c, msg)
						continue
					}
					time.Sleep(work)
					require.NoError(t, c.Ack(msg))
				}
			})
		}
	}
}
