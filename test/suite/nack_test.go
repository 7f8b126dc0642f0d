package suite

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
)

var kinds = map[string]pulsar.SubscriptionType{
	"Exclusive": pulsar.Exclusive, "Shared": pulsar.Shared, "Failover": pulsar.Failover, "KeyShared": pulsar.KeyShared,
}

func each[T any](t *testing.T, cases map[string]T, test func(*testing.T, T)) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

// ways are how a message is failed on.
var ways = map[string]struct {
	option redelivery.Option
	fail   func(*redelivery.Consumer, pulsar.Message)
}{
	"nack": {redelivery.WithNackRedeliveryDelay(ms(300)), (*redelivery.Consumer).Nack},
	"ack timeout": {redelivery.WithAckTimeout(ms(300)), func(c *redelivery.Consumer, msg pulsar.Message) {
		_ = c.InProgress(msg) // the clock starts after the caller looked at it
	}},
}

func TestFailedMessagesComeBackOnce(t *testing.T) {
	t.Parallel()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) { failedMessagesComeBackOnce(t, way.option, way.fail) })
	}
}

func failedMessagesComeBackOnce(t *testing.T, option redelivery.Option, fail func(*redelivery.Consumer, pulsar.Message)) {
	each(t, kinds, func(t *testing.T, kind pulsar.SubscriptionType) {
		each(t, map[string]bool{"batched": true, "single": false}, func(t *testing.T, batched bool) {
			for _, partitions := range []int{0, 2} {
				t.Run(fmt.Sprint(partitions), func(t *testing.T) {
					t.Parallel()
					b := newBroker(t)
					topic := b.topic(partitions)
					c := b.subscribe(b.options(topic, kind), option)
					b.send(topic, 10, batched)
					failed := map[string]time.Time{}
					for range 10 {
						msg := receive(t, c)
						failed[string(msg.Payload())] = time.Now()
						fail(c, msg)
					}
					require.Len(t, failed, 10)
					for range 10 {
						msg := receive(t, c)
						at, ok := failed[string(msg.Payload())]
						require.True(t, ok, "%q came twice", msg.Payload())
						require.GreaterOrEqual(t, time.Since(at), ms(300))
						assert.EqualValues(t, 1, c.RedeliveryCount(msg))
						delete(failed, string(msg.Payload()))
						require.NoError(t, c.Ack(msg))
					}
					nothing(t, c, ms(500))
					b.settles(topic, partitions)
				})
			}
		})
	})
}

func TestBackoffGrows(t *testing.T) {
	t.Parallel()
	each(t, map[string]pulsar.SubscriptionType{"Shared": pulsar.Shared, "Exclusive": pulsar.Exclusive},
		func(t *testing.T, kind pulsar.SubscriptionType) {
			each(t, map[string]bool{"by message": false, "by id": true}, func(t *testing.T, byID bool) {
				t.Parallel()
				b := newBroker(t)
				topic := b.topic(0)
				policy := backoff.Exponential{Min: ms(100), Max: time.Second, Multiplier: 2}
				c := b.subscribe(b.options(topic, kind), redelivery.WithNackRedeliveryBackoff(policy))
				b.send(topic, 1, false)
				var due time.Time
				for n := range uint32(6) {
					msg := receive(t, c)
					require.False(t, time.Now().Before(due), "early")
					require.Equal(t, n, c.RedeliveryCount(msg))
					if n == 5 {
						require.NoError(t, c.Ack(msg))
						break
					}
					due = time.Now().Add(policy.Next(n))
					if byID {
						c.NackID(msg.ID())
					} else {
						c.Nack(msg)
					}
				}
				b.settles(topic, 0)
			})
		})
}

func TestPlainConsumerWrapped(t *testing.T) {
	t.Parallel()
	each(t, map[string][]redelivery.Option{
		"unknown": nil, "known": {redelivery.WithInnerNackDelay(2 * time.Second)},
	}, func(t *testing.T, options []redelivery.Option) {
		t.Parallel()
		b := newBroker(t)
		topic := b.topic(0)
		opts := b.options(topic, pulsar.Shared)
		opts.NackRedeliveryDelay = 2 * time.Second
		inner, err := b.client.Subscribe(opts)
		require.NoError(t, err)
		policy := backoff.Exponential{Min: time.Second, Max: 10 * time.Second, Multiplier: 2}
		var log syncBuffer
		c, err := redelivery.Wrap(inner, append(options, redelivery.WithNackRedeliveryBackoff(policy),
			redelivery.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))...)
		require.NoError(t, err)
		defer c.Close()
		b.send(topic, 10, false)
		due := map[string]time.Time{}
		var worst time.Duration
		for range 10 * 3 {
			msg := receive(t, c)
			now, at := time.Now(), due[string(msg.Payload())]
			require.False(t, now.Before(at), "early by %v", at.Sub(now))
			if !at.IsZero() {
				worst = max(worst, now.Sub(at))
			}
			n := c.RedeliveryCount(msg)
			if n == 2 {
				require.NoError(t, c.Ack(msg))
				continue
			}
			due[string(msg.Payload())] = now.Add(policy.Next(n))
			c.Nack(msg)
		}
		t.Logf("late by up to %v", worst)
		require.Less(t, worst, 2*time.Second*4/3+time.Second)
		require.Equal(t, 1, strings.Count(log.String(), "was not prepared"), log.String())
		b.settles(topic, 0)
	})
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestAckedSiblingsStayAcked(t *testing.T) {
	t.Parallel()
	each(t, kinds, func(t *testing.T, kind pulsar.SubscriptionType) {
		each(t, map[string]bool{"index acks": true, "no index acks": false}, func(t *testing.T, index bool) {
			t.Parallel()
			b := newBroker(t)
			topic := b.topic(0)
			opts := b.options(topic, kind)
			opts.EnableBatchIndexAcknowledgment = index
			c := b.subscribe(opts, redelivery.WithNackRedeliveryDelay(ms(300)))
			b.send(topic, 5, true)
			var msgs []pulsar.Message
			for range 5 {
				msgs = append(msgs, receive(t, c))
			}
			require.EqualValues(t, 5, msgs[0].ID().BatchSize())
			require.NoError(t, c.Ack(msgs[0]))
			require.NoError(t, c.Ack(msgs[1]))
			c.Nack(msgs[2])
			again := receive(t, c)
			require.Equal(t, "2", string(again.Payload()))
			nothing(t, c, ms(500))
			require.NoError(t, c.Ack(msgs[3]))
			require.NoError(t, c.Ack(again))
			require.NoError(t, c.Ack(msgs[4]))
			nothing(t, c, ms(200))
			b.settles(topic, 0)
		})
	})
}

func TestUnloadWhileNacksWait(t *testing.T) {
	t.Parallel()
	each(t, kinds, func(t *testing.T, kind pulsar.SubscriptionType) {
		t.Parallel()
		b := newBroker(t)
		topic := b.topic(0)
		c := b.subscribe(b.options(topic, kind), redelivery.WithNackRedeliveryDelay(3*time.Second))
		b.send(topic, 10, false)
		due := map[string]time.Time{}
		for n := range uint32(2) {
			seen := map[string]bool{}
			for range 10 {
				msg := receive(t, c)
				payload := string(msg.Payload())
				require.False(t, seen[payload], "%s came twice", payload)
				seen[payload] = true
				require.False(t, time.Now().Before(due[payload]), "early")
				require.Equal(t, n, c.RedeliveryCount(msg))
				due[payload] = time.Now().Add(3 * time.Second)
				c.Nack(msg)
			}
			b.unload(topic)
		}
		for range 10 {
			msg := receive(t, c)
			require.False(t, time.Now().Before(due[string(msg.Payload())]), "early")
			require.EqualValues(t, 2, c.RedeliveryCount(msg))
			require.NoError(t, c.Ack(msg))
		}
		nothing(t, c, ms(300))
		b.settles(topic, 0)
	})
}

// Every message is nacked three times with delays of its own and then acknowledged, while the topic is unloaded.
func TestCountsAreExactOverUnloads(t *testing.T) {
	t.Parallel()
	const n, nacks = 200, 3
	for _, kind := range []string{"Exclusive", "Shared"} {
		for _, batched := range []bool{true, false} {
			for _, index := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s batched=%t index=%t", kind, batched, index), func(t *testing.T) {
					t.Parallel()
					b := newBroker(t)
					topic := b.topic(0)
					opts := b.options(topic, kinds[kind])
					opts.EnableBatchIndexAcknowledgment = index
					c := b.subscribe(opts)
					b.send(topic, n, batched)
					stop := make(chan struct{})
					defer close(stop)
					go func() {
						for range 3 {
							select {
							case <-time.After(ms(900)):
								b.unload(topic)
							case <-stop:
								return
							}
						}
					}()
					due := make([]time.Time, n)
					count := make([]uint32, n)
					for range n * (nacks + 1) {
						msg := receive(t, c)
						i, err := strconv.Atoi(string(msg.Payload()))
						require.NoError(t, err)
						require.False(t, time.Now().Before(due[i]), "message %d is early", i)
						require.Equal(t, count[i], c.RedeliveryCount(msg), "message %d", i)
						if count[i]++; count[i] > nacks {
							require.NoError(t, c.Ack(msg))
							continue
						}
						delay := ms(rand.IntN(1500))
						due[i] = time.Now().Add(delay)
						require.NoError(t, c.NackWithDelay(msg, delay))
					}
					// An unload may have lost acks: the copies are acknowledged as they come, if somebody receives.
					for begin := time.Now(); time.Since(begin) < 15*time.Second; {
						nothing(t, c, ms(200))
						if s := b.stats(topic, 0); time.Since(begin) > time.Second && s.Backlog == 0 && s.Unacked <= 0 {
							break
						}
					}
					b.settles(topic, 0)
					t.Logf("%+v, out %d", c.Stats(), b.stats(topic, 0).Out)
					require.Zero(t, c.Stats().Waiting)
				})
			}
		}
	}
}

// Upstream groups acknowledgements for up to 100 ms, and requests go ahead of them: the broker, which rewinds, sends what was
// acknowledged again.
func TestARequestOvertakesAcknowledgements(t *testing.T) {
	t.Parallel()
	for name, kind := range kinds {
		if kind != pulsar.Exclusive && kind != pulsar.Failover {
			continue
		}
		t.Run(name, func(t *testing.T) {
			each(t, map[string]bool{"batched": true, "single": false}, func(t *testing.T, batched bool) {
				t.Parallel()
				b := newBroker(t)
				topic := b.topic(0)
				c := b.subscribe(b.options(topic, kind))
				b.send(topic, 50, false)
				b.send(topic, 50, batched)
				var msgs []pulsar.Message
				for range 100 {
					msgs = append(msgs, receive(t, c))
				}
				require.NoError(t, c.NackWithDelay(msgs[0], ms(200)))
				time.Sleep(ms(150))
				for _, msg := range msgs[1:] {
					require.NoError(t, c.Ack(msg))
				}
				again := receive(t, c)
				require.Equal(t, msgs[0].Payload(), again.Payload())
				require.NoError(t, c.Ack(again))
				nothing(t, c, ms(500))
				b.settles(topic, 0)
			})
		})
	}
}
