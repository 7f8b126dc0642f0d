package retry

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/reconsume"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// farBroker is a client whose producers get each answer after a round trip.
type farBroker struct {
	pulsar.Client
	roundTrip time.Duration
	mu        sync.Mutex
	sent      []string
	err       error // the error in all answers
}

func (f *farBroker) CreateProducer(pulsar.ProducerOptions) (pulsar.Producer, error) {
	return farProducer{f: f}, nil
}

func (f *farBroker) payloads() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.sent...)
}

type farProducer struct {
	pulsar.Producer
	f *farBroker
}

func (farProducer) Close()                               {}
func (farProducer) FlushWithCtx(_ context.Context) error { return nil }
func (p farProducer) SendAsync(_ context.Context, m *pulsar.ProducerMessage, done func(pulsar.MessageID, *pulsar.ProducerMessage, error)) {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.f.sent = append(p.f.sent, string(m.Payload))
	time.AfterFunc(p.f.roundTrip, func() { done(nil, m, p.f.err) })
}

// far returns a Consumer that publishes retries to f, and n messages that it has received.
func far(t *testing.T, f *farBroker, n int64, options ...redelivery.Option) (*redelivery.Consumer, *testkit.Fake, []pulsar.Message) {
	t.Helper()
	r, err := reconsume.New(f, reconsume.Options{Topic: "t", Subscription: testkit.Subscription})
	require.NoError(t, err)
	t.Cleanup(r.Close)
	c, inner := testkit.SubscribeFake(t, pulsar.Shared,
		append(options, redelivery.WithReconsumer(r), testkit.LogTo(t.Output()))...)
	var msgs []pulsar.Message
	for i := range n {
		inner.Queue <- pulsar.ConsumerMessage{Consumer: inner,
			Message: testkit.WholeMessage{Message: testkit.Message{MessageID: pulsar.NewMessageID(1, i, 0, 0)}}}
		msgs = append(msgs, testkit.Receive(t, c))
	}
	return c, inner, msgs
}

// allowDelays publishes msg with a long delay. Later retries then do not wait until the broker has accepted their delays.
func allowDelays(t *testing.T, c *redelivery.Consumer, msg pulsar.Message) {
	t.Helper()
	require.NoError(t, c.ReconsumeLaterAfter(context.Background(), msg, 24*time.Hour, nil))
}

// Upstream's ReconsumeLater does not wait, either. 2,000 messages are published in order, in two round trips.
func TestReconsumeLaterDoesNotWaitForTheBroker(t *testing.T) {
	for name, delay := range map[string]time.Duration{"delayed": time.Minute, "at once": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &farBroker{roundTrip: 100 * time.Millisecond}
				c, inner, msgs := far(t, f, 2001)
				allowDelays(t, c, msgs[2000])
				began := time.Now()
				for _, msg := range msgs[:2000] {
					c.ReconsumeLater(msg, delay)
				}
				// at most a thousand messages may have no answer
				require.LessOrEqual(t, time.Since(began), 100*time.Millisecond, "the calls waited for two round trips")
				time.Sleep(150 * time.Millisecond)
				synctest.Wait()
				require.Len(t, inner.Acks(), 2001)
				for i, payload := range f.payloads()[1:] {
					require.Equal(t, fmt.Sprint(i), payload)
				}
				require.Zero(t, c.Stats().Failed)
			})
		})
	}
}

// Observer.Settled reports the error, and the message comes back.
func TestReconsumeLaterThatFailsIsNacked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &farBroker{roundTrip: 100 * time.Millisecond, err: errors.New("no")}
		var failed atomic.Int32
		c, inner, msgs := far(t, f, 3, redelivery.WithNackRedeliveryDelay(time.Second),
			redelivery.WithObserver(redelivery.Observer{
				Settled: func(e redelivery.Settled) {
					if e.Outcome == redelivery.Reconsumed && e.Err != nil {
						failed.Add(1)
					}
				},
			}))
		for _, msg := range msgs {
			c.ReconsumeLaterWithCustomProperties(msg, map[string]string{"why": "busy"}, time.Minute)
		}
		for range msgs {
			require.EqualValues(t, 1, testkit.Receive(t, c).RedeliveryCount())
		}
		require.EqualValues(t, 3, c.Stats().Failed)
		require.EqualValues(t, 3, failed.Load())
		require.Empty(t, inner.Acks())
	})
}

// The callback may call the Consumer.
func TestReconsumeCallbackIsCalledOnce(t *testing.T) {
	after := func(ctx context.Context, c *redelivery.Consumer, msg pulsar.Message, done func(error)) error {
		return c.ReconsumeLaterAfter(ctx, msg, time.Minute, nil, redelivery.WithCallback(done))
	}
	for name, test := range map[string]func(*testing.T, *farBroker){
		"each method": func(t *testing.T, f *farBroker) {
			c, inner, msgs := far(t, f, 4)
			allowDelays(t, c, msgs[3])
			outcomes := make(chan error, 3)
			done := redelivery.WithCallback(func(err error) { outcomes <- err })
			require.NoError(t, c.ReconsumeLaterNext(context.Background(), msgs[0], done))
			require.NoError(t, c.ReconsumeLaterLevel(context.Background(), msgs[1], 3, done))
			require.NoError(t, c.ReconsumeLaterAfter(context.Background(), msgs[2], time.Hour, nil, done))
			require.Len(t, inner.Acks(), 1)
			for range 3 {
				require.NoError(t, <-outcomes)
			}
			require.Len(t, inner.Acks(), 4)
			require.ErrorIs(t, c.ReconsumeLaterNext(context.Background(), msgs[0], done), redelivery.ErrNotInFlight)
			require.Error(t, c.ReconsumeLaterLevel(context.Background(), msgs[0], 99, done))
			synctest.Wait()
			require.Empty(t, outcomes, "an error was returned and also passed to the callback")
		},
		"an error": func(t *testing.T, f *farBroker) {
			f.err = errors.New("no")
			c, inner, msgs := far(t, f, 1, redelivery.WithNackRedeliveryDelay(0))
			outcome := make(chan error, 1)
			require.NoError(t, after(context.Background(), c, msgs[0], func(err error) {
				c.Nack(msgs[0]) // the application still has the message
				outcome <- err
			}))
			require.ErrorIs(t, <-outcome, f.err)
			require.Equal(t, msgs[0].ID(), testkit.Receive(t, c).ID())
			require.Empty(t, inner.Acks())
		},
		"a context that ends": func(t *testing.T, f *farBroker) {
			c, inner, msgs := far(t, f, 2)
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			outcome := make(chan error, 1)
			require.NoError(t, after(ctx, c, msgs[0], func(err error) { outcome <- err }))
			require.ErrorIs(t, <-outcome, context.DeadlineExceeded)
			require.ErrorIs(t, after(ctx, c, msgs[1], func(error) { t.Error("called") }), context.DeadlineExceeded)
			require.Empty(t, inner.Acks())
			require.NoError(t, c.Ack(msgs[0]))
		},
		"no room": func(t *testing.T, f *farBroker) {
			c, _, msgs := far(t, f, 1002)
			allowDelays(t, c, msgs[1001])
			f.roundTrip = time.Minute
			for _, msg := range msgs[:1000] {
				c.ReconsumeLater(msg, time.Minute)
			}
			synctest.Wait()
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			require.ErrorIs(t, after(ctx, c, msgs[1000], func(error) { t.Error("called") }), context.DeadlineExceeded)
			go c.Close()
			synctest.Wait()
			require.ErrorIs(t, after(context.Background(), c, msgs[1000], nil), redelivery.ErrClosed)
		},

		"reconsumes": func(t *testing.T, f *farBroker) {
			c, inner, msgs := far(t, f, 1001)
			for _, msg := range msgs[1:] {
				require.NoError(t, after(context.Background(), c, msg, func(error) {
					_ = after(context.Background(), c, msgs[0], func(error) {})
				}))
			}
			time.Sleep(time.Second)
			require.Len(t, inner.Acks(), 1001)
		},
		"closes": func(t *testing.T, f *farBroker) {
			c, inner, msgs := far(t, f, 11)
			allowDelays(t, c, msgs[10])
			var outcomes [10]error
			var callbacks sync.WaitGroup
			callbacks.Add(10)
			for i, msg := range msgs[:10] {
				require.NoError(t, after(context.Background(), c, msg, func(err error) {
					c.Close()
					outcomes[i] = err
					callbacks.Done()
				}))
			}
			callbacks.Wait()
			require.Equal(t, [10]error{}, outcomes, "Close did not wait for calls under way")
			require.Len(t, inner.Acks(), 11)
		},
		"Close does not wait for long": func(t *testing.T, f *farBroker) {
			c, inner, msgs := far(t, f, 11)
			allowDelays(t, c, msgs[10])
			f.roundTrip = time.Minute
			outcomes := make(chan error, 10)
			for _, msg := range msgs[:10] {
				require.NoError(t, after(context.Background(), c, msg, func(err error) { outcomes <- err }))
			}
			began := time.Now()
			c.Close()
			require.LessOrEqual(t, time.Since(began), time.Second)
			for range 10 {
				require.ErrorIs(t, <-outcomes, redelivery.ErrClosed)
			}
			require.Len(t, inner.Acks(), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, &farBroker{roundTrip: 100 * time.Millisecond}) })
		})
	}
}

// early is a retry that the broker releases before its delay is over.
type early struct {
	testkit.WholeMessage
	delay time.Duration
	sent  time.Time
}

func (m early) Topic() string          { return "persistent://public/default/t-sub-RETRY" }
func (m early) PublishTime() time.Time { return m.sent }
func (m early) Properties() map[string]string {
	return map[string]string{"RECONSUMETIMES": "1", "REAL_TOPIC": "t", "ORIGIN_MESSAGE_IDY_TIME": "1:1:0",
		"DELAY_TIME": strconv.FormatInt(m.delay.Milliseconds(), 10)}
}

// The namespace does not delay messages. The Consumer holds a retry back, for days if necessary.
func TestLongDelaysAreHeldBack(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{25 * time.Hour, 7 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			c, inner, _ := far(t, &farBroker{}, 0)
			due := time.Now().Add(delay)
			msg := early{testkit.WholeMessage{Message: testkit.Message{MessageID: pulsar.NewMessageID(1, 1, 0, 0)}},
				delay, time.Now()}
			inner.Queue <- pulsar.ConsumerMessage{Consumer: inner, Message: msg}
			_, err := c.Receive(t.Context())
			require.NoError(t, err)
			require.False(t, time.Now().Before(due), "%v early", time.Until(due))
		})
	}
}
