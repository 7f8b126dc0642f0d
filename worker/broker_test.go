package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

var quiet = slog.New(slog.DiscardHandler)

// site is a topic of a broker: of the real one that PULSAR_URL and PULSAR_ADMIN_URL name, or of one in this process.
type site struct {
	testing.TB
	client    pulsar.Client
	admin     string
	topic     string
	inProcess *pulsartest.Server // nil if the broker is a real one
}

func newSite(t testing.TB) *site {
	url, admin := os.Getenv("PULSAR_URL"), os.Getenv("PULSAR_ADMIN_URL")
	if url == "" || admin == "" {
		return newSiteInProcess(t)
	}
	return (&site{TB: t, admin: admin}).connect(url)
}

func newSiteInProcess(t testing.TB) *site {
	server := pulsartest.NewServer(t)
	return (&site{TB: t, admin: server.AdminURL(), inProcess: server}).connect(server.URL())
}

func (s *site) connect(url string) *site {
	var err error
	s.client, err = pulsar.NewClient(pulsar.ClientOptions{URL: url, Logger: plog.NewLoggerWithSlog(quiet),
		OperationTimeout: 3 * time.Second})
	require.NoError(s, err)
	s.Cleanup(s.client.Close)
	s.Cleanup(http.DefaultClient.CloseIdleConnections)
	s.topic = fmt.Sprintf("worker-%08x", rand.Uint32())
	return s
}

func (s *site) subscribe(opts pulsar.ConsumerOptions, options ...redelivery.Option) *redelivery.Consumer {
	opts.Topic, opts.SubscriptionName = s.topic, "sub"
	opts.SubscriptionInitialPosition = pulsar.SubscriptionPositionEarliest
	c, err := redelivery.Subscribe(s.client, opts, append(options, redelivery.WithLogger(quiet))...)
	require.NoError(s, err)
	s.Cleanup(c.Close)
	return c
}

// publish sends messages, in one batch or each by itself. The key is the payload.
func (s *site) publish(batched bool, payloads ...string) {
	producer, err := s.client.CreateProducer(pulsar.ProducerOptions{Topic: s.topic, DisableBatching: !batched,
		BatchingMaxMessages: uint(len(payloads)), BatchingMaxPublishDelay: time.Minute})
	require.NoError(s, err)
	defer producer.Close()
	for _, payload := range payloads {
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: []byte(payload), Key: payload},
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { assert.NoError(s, err) })
	}
	require.NoError(s, producer.FlushWithCtx(context.Background()))
}

// backlog returns how many entries of the subscription are not acknowledged.
func (s *site) backlog() int {
	answer, err := http.Get(s.admin + "/admin/v2/persistent/public/default/" + s.topic + "/stats")
	require.NoError(s, err)
	defer answer.Body.Close()
	var stats struct {
		Subscriptions map[string]struct {
			Backlog int `json:"msgBacklog"`
		} `json:"subscriptions"`
	}
	require.NoError(s, json.NewDecoder(answer.Body).Decode(&stats))
	return stats.Subscriptions["sub"].Backlog
}

// letters returns payloads and reasons of the dead letters, in order of the text.
func (s *site) letters() (all []string) {
	reader, err := s.client.CreateReader(pulsar.ReaderOptions{Topic: s.topic + "-sub-DLQ", StartMessageID: pulsar.EarliestMessageID()})
	require.NoError(s, err)
	defer reader.Close()
	for reader.HasNext() {
		msg, err := reader.Next(context.Background())
		require.NoError(s, err)
		all = append(all, string(msg.Payload())+": "+msg.Properties()["EXCEPTION_MESSAGE"])
	}
	slices.Sort(all)
	return all
}

var kinds = map[string]pulsar.SubscriptionType{
	"Exclusive": pulsar.Exclusive, "Failover": pulsar.Failover, "Shared": pulsar.Shared, "Key_Shared": pulsar.KeyShared,
}

// TestOutcomesAtABroker has the rows of the package's table on each subscription type, batched and not.
func TestOutcomesAtABroker(t *testing.T) {
	const nackDelay, retryDelay = 100 * time.Millisecond, 300 * time.Millisecond
	rows := []string{"nil", "twice", "always", "permanent", "later", "panics", "slow"}
	wantCalls := map[string]int{"nil": 1, "twice": 3, "always": 3, "permanent": 1, "later": 2, "panics": 3, "slow": 1}
	for name, kind := range kinds {
		for _, batched := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/batched=%v", name, batched), func(t *testing.T) {
				t.Parallel()
				s := newSite(t)
				c := s.subscribe(pulsar.ConsumerOptions{Type: kind, DLQ: &pulsar.DLQPolicy{MaxDeliveries: 3}},
					redelivery.WithNackRedeliveryDelay(nackDelay), redelivery.WithAckTimeout(300*time.Millisecond))
				var mu sync.Mutex
				calls, last := map[string]int{}, map[string]time.Time{}
				w, err := worker.New(c, func(_ context.Context, msg pulsar.Message) error {
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
						panic("oops")
					case row == "slow":
						time.Sleep(time.Second) // three ack timeouts
					}
					return nil
				}, worker.WithConcurrency(3), worker.WithTimeout(time.Minute), worker.WithLogger(quiet))
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan error, 1)
				go func() { done <- w.Run(ctx) }()
				s.publish(batched, rows...)
				assert.Eventually(t, func() bool { return s.backlog() == 0 && w.State().InFlight == 0 },
					30*time.Second, 20*time.Millisecond)
				cancel()
				require.NoError(t, <-done)
				require.Equal(t, wantCalls, calls)
				require.Equal(t, []string{"always: no luck", "panics: panic: oops", "permanent: wrapped: no luck"}, s.letters())
				state := w.State()
				require.Equal(t, worker.State{Succeeded: 4, Failed: 9, Permanent: 1, Panics: 3}, state)
			})
		}
	}
}

// TestAnythingAtABroker runs workers over random handlers, connections that drop, pauses and restarts, until all is settled, and
// accounts for every message.
func TestAnythingAtABroker(t *testing.T) {
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
			deadline := time.Now().Add(time.Minute)
			for restart := 0; restart == 0 || s.backlog() > 0; restart++ {
				require.Less(t, time.Now(), deadline, "backlog %d", s.backlog())
				c := s.subscribe(pulsar.ConsumerOptions{Type: kind, DLQ: &pulsar.DLQPolicy{MaxDeliveries: 100}},
					redelivery.WithNackRedeliveryDelay(20*time.Millisecond), redelivery.WithAckTimeout(200*time.Millisecond))
				w, err := worker.New(c, handler, worker.WithConcurrency(1+rng.IntN(4)), worker.WithTimeout(100*time.Millisecond),
					worker.WithDrainTimeout(time.Duration(rng.IntN(100))*time.Millisecond), worker.WithLogger(quiet))
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(1500))*time.Millisecond)
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
				require.NoError(t, <-done)
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

// A Consumer that gave up reconnecting ends Run with its error.
func TestGivesUpAtABroker(t *testing.T) {
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
		require.ErrorContains(t, err, "the consumer is lost")
		var closed *pulsar.Error
		require.True(t, errors.As(err, &closed), "%v", err)
	case <-time.After(time.Minute):
		t.Fatal("Run does not return")
	}
}
