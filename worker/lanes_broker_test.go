package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// TestKeyOrderAtABroker runs workers that join and leave a subscription, with handlers that fail. No message is handled
// before all earlier messages of its key have succeeded. On Key_Shared and Exclusive no two messages of a key are
// handled at the same time, and none is handled again after a success. When Failover changes the active consumer, the
// new one also gets the messages that are still in handlers of the old one.
func TestKeyOrderAtABroker(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]pulsar.SubscriptionType{"Key_Shared": pulsar.KeyShared, "Failover": pulsar.Failover,
		"Exclusive": pulsar.Exclusive, "Exclusive, in process, connections drop": pulsar.Exclusive} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drops := strings.Contains(name, "drop")
			var s *site
			if drops {
				s = newSiteInProcess(t)
			} else {
				s = newSite(t)
			}
			const keys, each = 10, 100
			var mu sync.Mutex
			succeeded, calls := map[string]int{}, 0 // succeeded: messages of each key
			active, together, again := map[string]int{}, 0, 0
			handler := func(_ context.Context, msg pulsar.Message) error {
				var n int
				_, _ = fmt.Sscan(string(msg.Payload()), &n)
				mu.Lock()
				calls++
				switch active[msg.Key()]++; {
				case n > succeeded[msg.Key()]:
					t.Errorf("message %d of key %s is handled after only %d messages of the key succeeded", n, msg.Key(), succeeded[msg.Key()])
				case n < succeeded[msg.Key()]:
					again++
				case active[msg.Key()] > 1:
					together++
				}
				mu.Unlock()
				time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				active[msg.Key()]--
				if rand.IntN(3) == 0 {
					return errTest
				}
				if n == succeeded[msg.Key()] {
					succeeded[msg.Key()]++
				}
				return nil
			}
			first := s.subscribe(pulsar.ConsumerOptions{Type: kind})
			first.Close()
			producer, err := s.client.CreateProducer(pulsar.ProducerOptions{Topic: s.topic, DisableBatching: true})
			require.NoError(t, err)
			defer producer.Close()
			for n := range each {
				for key := range keys {
					producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(n)), Key: fmt.Sprint(key)},
						func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { assert.NoError(t, err) })
				}
			}
			require.NoError(t, producer.FlushWithCtx(context.Background()))
			consumers := 3
			if kind == pulsar.Exclusive {
				consumers = 1
			}
			finished := func() bool {
				mu.Lock()
				defer mu.Unlock()
				for key := range keys {
					if succeeded[fmt.Sprint(key)] < each {
						return false
					}
				}
				return true
			}
			deadline := time.Now().Add(3 * time.Minute)
			var all sync.WaitGroup
			if drops {
				all.Go(func() {
					for before := 0; !finished() && time.Now().Before(deadline); {
						time.Sleep(time.Duration(50+rand.IntN(200)) * time.Millisecond)
						mu.Lock()
						progress := calls > before // a busy machine may take longer to connect
						before = calls
						mu.Unlock()
						if progress || rand.IntN(5) == 0 {
							s.inProcess.DropConnections()
						}
					}
				})
			}
			var joined atomic.Int32
			for range consumers {
				all.Go(func() {
					for !finished() && time.Now().Before(deadline) {
						c, err := s.trySubscribe(pulsar.ConsumerOptions{Type: kind, ReceiverQueueSize: 20,
							// otherwise Close of pulsar-client-go may lose acknowledgements: see test/compared/upstream.md
							AckGroupingOptions: &pulsar.AckGroupingOptions{MaxSize: 1}},
							redelivery.WithNackRedeliveryDelay(10*time.Millisecond), redelivery.WithAckTimeout(10*time.Second))
						if drops && err != nil { // the connection was dropped while it subscribed
							continue
						}
						if !assert.NoError(t, err) {
							return
						}
						w, err := worker.New(c, handler, worker.WithKeyOrder(), worker.WithConcurrency(4), worker.WithLogger(quiet))
						if !assert.NoError(t, err) {
							return
						}
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(200+rand.IntN(600))*time.Millisecond)
						joined.Add(1)
						assert.NoError(t, w.Run(ctx))
						cancel()
						c.Close()
					}
				})
			}
			all.Wait()
			require.True(t, finished(), "%v", succeeded)
			t.Logf("%d calls for %d messages, %d consumers came and went, together %d, again %d", calls, keys*each, joined.Load(), together, again)
			if kind != pulsar.Failover {
				require.Zero(t, together)
			}
			if kind != pulsar.Failover && !drops { // a dropped connection may lose the acks before it
				require.Zero(t, again)
			}
		})
	}
}

// A drain leaves a message that waits for its local retry to the broker. It finishes a batch that it has begun, but not
// a later message of that message's key.
func TestDrainHandlesNoMessageWhenAnEarlierOneOfItsKeyWasLeft(t *testing.T) {
	t.Parallel()
	s := newSiteInProcess(t)
	c := s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Exclusive})
	producer, err := s.client.CreateProducer(pulsar.ProducerOptions{Topic: s.topic, BatchingMaxPublishDelay: time.Minute})
	require.NoError(t, err)
	defer producer.Close()
	for _, batch := range [][]string{{"a0"}, {"a1", "b0", "c0", "d0"}} {
		for _, payload := range batch {
			producer.SendAsync(t.Context(), &pulsar.ProducerMessage{Payload: []byte(payload), Key: payload[:1]},
				func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { assert.NoError(t, err) })
		}
		require.NoError(t, producer.FlushWithCtx(t.Context()))
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	d := &diary{began: time.Now()}
	w, err := worker.New(c, func(_ context.Context, msg pulsar.Message) error {
		d.note(msg)
		switch msg.Key() {
		case "a":
			return errTest
		case "b":
			stop()
			time.Sleep(300 * time.Millisecond) // until the other slot has left its message
		}
		return nil
	}, worker.WithKeyOrder(), worker.WithConcurrency(2), worker.WithLogger(quiet), worker.WithLocalRetries(1, backoff.Fixed(time.Hour)))
	require.NoError(t, err)
	require.NoError(t, w.Run(ctx))
	require.NotContains(t, strings.Join(d.all(), ","), " a1 ")
	require.EqualValues(t, 3, w.Stats().Succeeded)
	require.EqualValues(t, 2, w.Stats().Left)
}
