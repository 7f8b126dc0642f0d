package owners

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// The waiting messages come on time and with the next count. Acknowledged messages do not come.
func TestWaitingMessagesComeOnceAfterUnload(t *testing.T) {
	t.Parallel()
	const n, rounds, delay = 30, 3, 2 * time.Second
	for name, way := range testkit.Ways(delay) {
		for kind := range testkit.SubscriptionTypes {
			for _, batched := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s batched=%t", name, kind, batched), func(t *testing.T) {
					t.Parallel()
					b := testkit.NewBroker(t)
					topic := b.NewTopic(0)
					b.Send(topic, n, batched)
					// If an unload swallows the answer to an acknowledgement, upstream does not reconnect for this
					// long.
					b.Connect(pulsar.ClientOptions{OperationTimeout: 5 * time.Second})
					opts := b.Options(topic, testkit.SubscriptionTypes[kind])
					opts.AckWithResponse = true
					c := testkit.Insist(t, func() (*redelivery.Consumer, error) { return b.TrySubscribe(opts, way.Option) })
					due, last, acked := map[string]time.Time{}, map[string]pulsar.Message{}, map[string]bool{}
					for round := range uint32(rounds) {
						seen := map[string]bool{}
						for len(seen) < n-len(acked) {
							msg := testkit.Receive(t, c)
							now, which := time.Now(), testkit.Name(msg)
							require.False(t, acked[which], "%s came after its Ack had returned nil", which)
							require.False(t, seen[which], "%s came twice", which)
							require.False(t, now.Before(due[which]), "%s is early by %v", which, due[which].Sub(now))
							require.Equal(t, round, c.RedeliveryCount(msg), which)
							seen[which], last[which], due[which] = true, msg, now.Add(delay)
							way.Fail(c, msg)
						}
						for which := range seen { // a third of the messages is acknowledged now
							if len(acked) < n/rounds*int(round+1) {
								acks(b, c, last[which])
								acked[which] = true
							}
						}
						b.Unload(topic)
					}
					testkit.ReceiveNothing(t, c, delay+time.Second)
					b.Settles(topic, 0)
				})
			}
		}
	}
}

// acks acknowledges a message. It tries up to three times, since a busy broker may not answer right after an unload.
func acks(b *testkit.Broker, c *redelivery.Consumer, msg pulsar.Message) {
	b.T.Helper()
	err := c.Ack(msg)
	for tries := 0; err != nil && tries < 2; tries++ {
		b.T.Logf("Ack of %s: %v", testkit.Name(msg), err)
		err = c.Ack(msg)
	}
	require.NoError(b.T, err)
}

// Each message is nacked three times, with delays of its own, and then acknowledged. Meanwhile the topic is unloaded.
func TestCountsAreExactOverUnloads(t *testing.T) {
	t.Parallel()
	const n, nacks = 200, 3
	for _, kind := range []string{"Exclusive", "Shared"} {
		for _, batched := range []bool{true, false} {
			for _, index := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s batched=%t index=%t", kind, batched, index), func(t *testing.T) {
					t.Parallel()
					b := testkit.NewBroker(t)
					topic := b.NewTopic(0)
					opts := b.Options(topic, testkit.SubscriptionTypes[kind])
					opts.EnableBatchIndexAcknowledgment = index
					c := b.Subscribe(opts)
					b.Send(topic, n, batched)
					stop := make(chan struct{})
					defer close(stop)
					go func() {
						for range 3 {
							select {
							case <-time.After(900 * time.Millisecond):
								b.Unload(topic)
							case <-stop:
								return
							}
						}
					}()
					due := make([]time.Time, n)
					count := make([]uint32, n)
					for range n * (nacks + 1) {
						msg := testkit.Receive(t, c)
						i, err := strconv.Atoi(string(msg.Payload()))
						require.NoError(t, err)
						require.False(t, time.Now().Before(due[i]), "message %d is early", i)
						require.Equal(t, count[i], c.RedeliveryCount(msg), "message %d", i)
						count[i]++
						if count[i] > nacks {
							require.NoError(t, c.Ack(msg))
							continue
						}
						delay := time.Duration(rand.IntN(1500)) * time.Millisecond
						due[i] = time.Now().Add(delay)
						require.NoError(t, c.NackWithDelay(msg, delay))
					}
					// An unload may have lost acknowledgements. The Consumer repeats them for the copies that come
					// while the test receives.
					for begin := time.Now(); time.Since(begin) < 15*time.Second; {
						testkit.ReceiveNothing(t, c, 200*time.Millisecond)
						if s := b.Stats(topic, 0); time.Since(begin) > time.Second && s.Backlog == 0 && s.Unacked <= 0 {
							break
						}
					}
					b.Settles(topic, 0)
					t.Logf("%+v, out %d", c.Stats(), b.Stats(topic, 0).Out)
					require.Zero(t, c.Stats().Waiting)
				})
			}
		}
	}
}

// Upstream groups acknowledgements for up to 100 ms, so a request may reach the broker before them. Then the broker
// rewinds and sends the acknowledged messages again. The Consumer must not deliver them.
func TestRequestAheadOfGroupedAcksRedeliversNothing(t *testing.T) {
	t.Parallel()
	for name, kind := range testkit.SubscriptionTypes {
		if kind != pulsar.Exclusive && kind != pulsar.Failover {
			continue
		}
		t.Run(name, func(t *testing.T) {
			testkit.Each(t, map[string]bool{"batched": true, "single": false}, func(t *testing.T, batched bool) {
				b := testkit.NewBroker(t)
				topic := b.NewTopic(0)
				c := b.Subscribe(b.Options(topic, kind))
				b.Send(topic, 50, false)
				b.Send(topic, 50, batched)
				var msgs []pulsar.Message
				for range 100 {
					msgs = append(msgs, testkit.Receive(t, c))
				}
				require.NoError(t, c.NackWithDelay(msgs[0], 200*time.Millisecond))
				time.Sleep(150 * time.Millisecond)
				for _, msg := range msgs[1:] {
					require.NoError(t, c.Ack(msg))
				}
				again := testkit.Receive(t, c)
				require.Equal(t, msgs[0].Payload(), again.Payload())
				require.NoError(t, c.Ack(again))
				testkit.ReceiveNothing(t, c, 500*time.Millisecond)
				b.Settles(topic, 0)
			})
		})
	}
}

// When a topic is unloaded, messages between upstream and the Consumer may belong to another consumer: at most ten, as
// many as fit a plain consumer's channel.
func TestUnloadedPartitionLeavesAtMostTenMessages(t *testing.T) {
	t.Parallel()
	testkit.Each(t, map[string]int{"partition": 1, "no partitions": 0}, func(t *testing.T, partitions int) {
		const n = 100
		b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
		topic := b.NewTopic(partitions)
		opts := b.Options(topic, pulsar.Shared)
		opts.Name = "first"
		first := b.Subscribe(opts)
		b.Send(topic, n, false)
		handled := map[string]bool{}
		testkit.Receive(t, first)
		other, err := pulsar.NewClient(pulsar.ClientOptions{URL: b.URL, Logger: logtest.Client(t)})
		require.NoError(t, err)
		defer other.Close()
		opts.Name = "second"
		second, err := redelivery.Subscribe(other, opts)
		require.NoError(t, err)
		defer second.Close()

		var subscribes atomic.Bool // upstream is subscribing again, and has cleared its queue
		b.InProcess.SetHook(func(command pulsartest.Command) pulsartest.Verdict {
			if command.Type == "SUBSCRIBE" && command.Consumer == "first" {
				subscribes.Store(true)
				return pulsartest.Pass.After(2 * time.Second) // until the second consumer has got all messages
			}
			return pulsartest.Pass
		})
		b.Unload(testkit.PartitionsOf(topic, partitions)[0])
		require.Eventually(t, func() bool { return first.Stats().Reconnecting > 0 }, time.Second, time.Millisecond,
			"the first consumer did not notice the loss")
		for range n {
			msg := testkit.Receive(t, second)
			handled[testkit.Name(msg)] = true
			require.NoError(t, second.Ack(msg))
		}
		require.Len(t, handled, n)
		require.Eventually(t, subscribes.Load, 10*time.Second, time.Millisecond)
		again := 0
		testkit.Drain(t, first, 3*time.Second, func(msg pulsar.Message) { again++; require.NoError(t, first.Ack(msg)) })
		require.LessOrEqual(t, again, 10)
	})
}
