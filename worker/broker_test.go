package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// TestOutcomesAtABroker checks the rows of the package's table on each subscription type, for messages that are
// published in batches or singly, and handled in batches or singly.
func TestOutcomesAtABroker(t *testing.T) {
	t.Parallel()
	const nackDelay, retryDelay = 100 * time.Millisecond, 300 * time.Millisecond
	rows := []string{"nil", "twice", "always", "permanent", "later", "panics", "slow"}
	wantCalls := map[string]int{"nil": 1, "twice": 3, "always": 3, "permanent": 1, "later": 2, "panics": 3, "slow": 1}
	for name, kind := range kinds {
		for n := range 4 {
			batched, inBatches := n&1 > 0, n&2 > 0
			t.Run(fmt.Sprintf("%s/batched=%v/handled in batches=%v", name, batched, inBatches), func(t *testing.T) {
				t.Parallel()
				s := newSite(t)
				c := s.subscribe(pulsar.ConsumerOptions{Type: kind, DLQ: &pulsar.DLQPolicy{MaxDeliveries: 3}},
					redelivery.WithNackRedeliveryDelay(nackDelay), redelivery.WithAckTimeout(3*time.Second)) // longer than a stall of the computer
				var mu sync.Mutex
				calls, last := map[string]int{}, map[string]time.Time{}
				handler := func(_ context.Context, msg pulsar.Message) error {
					row := string(msg.Payload())
					mu.Lock()
					calls[row]++
					n, before := calls[row], last[row]
					mu.Unlock()
					defer func() {
						mu.Lock()
						defer mu.Unlock()
						last[row] = time.Now()
					}()
					switch delay := time.Since(before); {
					case n == 1:
					case row == "later":
						assert.GreaterOrEqual(t, delay, retryDelay, row)
					default:
						assert.GreaterOrEqual(t, delay, nackDelay, row)
					}
					switch {
					case row == "twice" && n <= 2, row == "always":
						return errTest
					case row == "permanent":
						return fmt.Errorf("wrapped: %w", worker.Permanent(errTest))
					case row == "later" && n == 1:
						return worker.RetryAfter(retryDelay, errTest)
					case row == "panics":
						if inBatches { // else the panic would fail the whole batch
							return errors.New("panic: oops")
						}
						panic("oops")
					case row == "slow":
						time.Sleep(7 * time.Second) // two ack timeouts
					}
					return nil
				}
				options := []worker.Option{worker.WithConcurrency(3), worker.WithTimeout(time.Minute), worker.WithLogger(quiet)}
				w, err := worker.New(c, handler, options...)
				want := worker.Stats{Succeeded: 4, Failed: 9, Permanent: 1, Panics: 3}
				if inBatches {
					want.Panics = 0
					w, err = worker.NewBatch(c, func(ctx context.Context, msgs []pulsar.Message) error {
						errs := worker.BatchError{}
						for i, msg := range msgs {
							errs[i] = handler(ctx, msg)
						}
						return errs
					}, worker.Batch{MaxMessages: 3}, options...)
				}
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan error, 1)
				go func() { done <- w.Run(ctx) }()
				s.publish(batched, rows...)
				assert.Eventually(t, func() bool { return s.backlog() == 0 && w.Stats().InFlight == 0 },
					30*time.Second, 20*time.Millisecond)
				cancel()
				require.NoError(t, waittest.Next(t, done))
				require.Equal(t, wantCalls, calls)
				require.Equal(t, []string{"always: no luck", "panics: panic: oops", "permanent: wrapped: no luck"}, s.letters())
				require.Equal(t, want, w.Stats())
			})
		}
	}
}

// Workers with random handlers run until all messages are settled, while connections drop and Workers pause and
// restart. Each message succeeds or becomes a dead letter.
func TestRandomHandlersLoseNoMessageAtABroker(t *testing.T) {
	t.Parallel()
	for round := range 8 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			s := newSiteInProcess(t)
			kind := []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Failover, pulsar.Shared, pulsar.KeyShared}[round%4]
			const n = 60
			var payloads []string
			for i := range n {
				payloads = append(payloads, fmt.Sprintf("%d %s", i, []string{"good", "good", "flaky", "bad", "panics", "slow"}[rng.IntN(6)]))
			}
			s.publish(round >= 4, payloads...)
			var mu sync.Mutex
			calls, succeeded := map[string]int{}, map[string]bool{}
			handler := func(ctx context.Context, msg pulsar.Message) error {
				payload := string(msg.Payload())
				mu.Lock()
				calls[payload]++
				first := calls[payload] == 1
				mu.Unlock()
				_, what, _ := strings.Cut(payload, " ")
				switch {
				case what == "bad":
					return worker.Permanent(errTest)
				case what == "flaky" && first:
					return errTest
				case what == "panics" && first:
					panic(errTest)
				case what == "slow" && first:
					<-ctx.Done()
					return ctx.Err()
				}
				mu.Lock()
				succeeded[payload] = true
				mu.Unlock()
				return nil
			}
			deadline := time.Now().Add(3 * time.Minute)
			for restart := 0; restart == 0 || s.backlog() > 0; restart++ {
				require.Less(t, time.Now(), deadline, "backlog %d", s.backlog())
				c := s.subscribe(pulsar.ConsumerOptions{Type: kind, DLQ: &pulsar.DLQPolicy{MaxDeliveries: 100}},
					redelivery.WithNackRedeliveryDelay(20*time.Millisecond), redelivery.WithAckTimeout(200*time.Millisecond))
				w, err := worker.New(c, handler, worker.WithConcurrency(1+rng.IntN(4)), worker.WithTimeout(100*time.Millisecond),
					worker.WithDrainTimeout(time.Duration(rng.IntN(100))*time.Millisecond), worker.WithLogger(quiet))
				require.NoError(t, err)
				// After each restart a producer's batch comes again whole, so on a busy machine one of the runs has to
				// be long enough to settle the whole batch.
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration((1+restart/10)*rng.IntN(1500))*time.Millisecond)
				done := make(chan error, 1)
				go func() { done <- w.Run(ctx) }()
				for range rng.IntN(4) {
					time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
					switch rng.IntN(3) {
					case 0:
						s.inProcess.DropConnections()
					case 1:
						w.Pause()
					case 2:
						w.Resume()
					}
				}
				w.Resume()
				require.NoError(t, waittest.Next(t, done))
				cancel()
				c.Close()
			}
			dead := map[string]bool{}
			for _, letter := range s.letters() {
				payload, _, _ := strings.Cut(letter, ": ")
				dead[payload] = true
			}
			for _, payload := range payloads {
				if bad := strings.HasSuffix(payload, "bad"); dead[payload] != bad || succeeded[payload] == bad {
					t.Errorf("%s: called %d times, succeeded %v, dead letter %v", payload, calls[payload], succeeded[payload], dead[payload])
				}
			}
		})
	}
}

func TestRunReturnsTheErrorOfAConsumerThatGaveUp(t *testing.T) {
	t.Parallel()
	s := newSiteInProcess(t)
	once := uint(1)
	c := s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Shared, MaxReconnectToBroker: &once})
	w, err := worker.New(c, succeed, worker.WithLogger(quiet))
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- w.Run(context.Background()) }()
	s.inProcess.RefuseConnections(true)
	s.inProcess.DropConnections()
	select {
	case err := <-done:
		require.ErrorIs(t, err, redelivery.ErrClosed)
	case <-time.After(time.Minute):
		t.Fatal("Run does not return")
	}
}

// A zero-queue consumer gets one message at a time from each connection.
func TestWorkerOfAZeroQueueConsumerHandlesAllMessages(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]worker.Option{"each by itself": nil, "by key": {worker.WithKeyOrder()}} {
		for _, batches := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/batches=%v", name, batches), func(t *testing.T) {
				t.Parallel()
				s := newSite(t)
				c := s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Shared, EnableZeroQueueConsumer: true},
					redelivery.WithNackRedeliveryDelay(10*time.Millisecond))
				waittest.ForZeroQueue()
				s.publish(false, "a", "b", "c", "d", "e", "f")
				var mu sync.Mutex
				calls := map[string]int{}
				handler := func(_ context.Context, msg pulsar.Message) error {
					mu.Lock()
					defer mu.Unlock()
					calls[string(msg.Payload())]++
					if calls[string(msg.Payload())] == 1 {
						return errTest
					}
					return nil
				}
				options := append([]worker.Option{worker.WithConcurrency(3), worker.WithLogger(quiet)}, options...)
				w, err := worker.New(c, handler, options...)
				if batches {
					w, err = worker.NewBatch(c, func(ctx context.Context, msgs []pulsar.Message) error {
						errs := worker.BatchError{}
						for i, msg := range msgs {
							errs[i] = handler(ctx, msg)
						}
						return errs
					}, worker.Batch{MaxMessages: 2, MaxWait: 20 * time.Millisecond}, options...)
				}
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan error, 1)
				go func() { done <- w.Run(ctx) }()
				assert.Eventually(t, func() bool { return w.Stats().Succeeded == 6 }, 30*time.Second, 10*time.Millisecond)
				cancel()
				require.NoError(t, waittest.Next(t, done))
				require.Equal(t, map[string]int{"a": 2, "b": 2, "c": 2, "d": 2, "e": 2, "f": 2}, calls)
			})
		}
	}
}
