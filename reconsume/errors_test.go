package reconsume_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/reconsume"
)

func TestMessageIsNotAcknowledgedAfterAnError(t *testing.T) {
	later := func(r *reconsume.Reconsumer, ctx context.Context, acks *consumer) error {
		return r.Later(ctx, pulsar.ConsumerMessage{Consumer: acks, Message: message{}})
	}
	for name, test := range map[string]func(*testing.T, *reconsume.Reconsumer, *client, *consumer){
		"the broker refuses the message": func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			c.sendErr = errBroker
			require.ErrorIs(t, later(r, bg, acks), errBroker)
			require.ErrorContains(t, later(r, bg, acks), retries)
			for i, end := range []error{pulsar.ErrProducerClosed, pulsar.ErrProducerFenced, pulsar.ErrSendTimeout,
				fmt.Errorf("%w", pulsar.ErrTopicTerminated), pulsar.ErrTopicNotfound} {
				c.sendErr = end
				require.ErrorIs(t, later(r, bg, acks), end)
				require.Len(t, c.created, i+1)
				c.sendErr = errBroker
				require.ErrorIs(t, later(r, bg, acks), errBroker)
				require.Len(t, c.created, i+2, "a producer that closed itself was not replaced")
				synctest.Wait()
				require.Equal(t, i+1, c.closed)
			}
		},
		"the producer closes itself during the call": func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			c.panics = true
			require.ErrorIs(t, later(r, bg, acks), pulsar.ErrProducerClosed)
		},
		"the broker does not answer in time": func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			c.lost = all
			ctx, cancel := context.WithTimeout(bg, time.Second)
			defer cancel()
			require.ErrorIs(t, later(r, ctx, acks), context.DeadlineExceeded)
		},
		"no producer can be created": func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			c.failures, c.slow = 100, time.Millisecond
			var calls sync.WaitGroup
			for range 10 { // they share one attempt
				calls.Go(func() { assert.ErrorIs(t, later(r, bg, acks), errBroker) })
			}
			calls.Wait()
			synctest.Wait()
			require.Len(t, c.created, 1)
			for attempts := 1; attempts < 12; attempts++ {
				begin := time.Now()
				for range 100 {
					require.ErrorIs(t, later(r, bg, acks), errBroker)
				}
				require.Equal(t, begin, time.Now(), "a call waited during the pause after an attempt")
				require.Len(t, c.created, attempts)
				time.Sleep(min(10*time.Second, 100*time.Millisecond<<(attempts-1)))
				require.ErrorIs(t, later(r, bg, acks), errBroker)
			}
			c.failures = 0
			time.Sleep(10 * time.Second)
			require.ErrorIs(t, later(r, bg, &consumer{ackErr: errBroker}), reconsume.ErrNotAcknowledged,
				"the message was not published")
		},
		"no producer is created in time": func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			c.slow = time.Minute
			ctx, cancel := context.WithTimeout(bg, time.Second)
			defer cancel()
			begin := time.Now()
			require.ErrorIs(t, later(r, ctx, acks), context.DeadlineExceeded)
			require.Equal(t, time.Second, time.Since(begin))
			require.ErrorIs(t, later(r, bg, acks), context.DeadlineExceeded)
			require.Equal(t, 30*time.Second, time.Since(begin), "the call did not end after the operation timeout")
			r.Close()
			time.Sleep(time.Minute)
			c.mu.Lock()
			defer c.mu.Unlock()
			require.Equal(t, 1, c.closed, "a producer that was created too late was not closed")
		},
		"the Reconsumer is closed while calls wait": func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			c.lost = all
			var calls sync.WaitGroup
			for range 3 {
				calls.Go(func() { assert.ErrorIs(t, later(r, bg, acks), reconsume.ErrClosed) })
			}
			synctest.Wait()
			r.Close()
			calls.Wait()
			require.Equal(t, 1, c.closed)
		},
		"the Reconsumer is closed while many producers are being created": func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			c.slow = time.Minute
			for i := range 50 {
				go func() {
					cm := pulsar.ConsumerMessage{Consumer: acks, Message: message{}}
					assert.Error(t, r.DeadLetter(bg, cm, reconsume.DeadLetterTo(fmt.Sprintf("dead-%d", i), errBroker)))
				}()
			}
			synctest.Wait()
			begin := time.Now()
			r.Close()
			require.Equal(t, 500*time.Millisecond, time.Since(begin))
			time.Sleep(time.Minute)
		},
		"the message was not decrypted": func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			cm := pulsar.ConsumerMessage{Consumer: acks, Message: message{keys: &pulsar.EncryptionContext{}}}
			for _, err := range []error{r.Later(bg, cm), r.LaterLevel(bg, cm, 1), r.LaterAfter(bg, cm, 0, nil),
				r.DeadLetter(bg, cm, nil)} {
				require.ErrorContains(t, err, "could not be decrypted")
			}
			require.Empty(t, c.created)
		},
		"the context is canceled": func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			ctx, cancel := context.WithCancel(bg)
			cancel()
			require.ErrorIs(t, later(r, ctx, acks), context.Canceled)
			require.Empty(t, c.created)
		},
		"the Reconsumer is closed": func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			r.Close()
			require.ErrorIs(t, later(r, bg, acks), reconsume.ErrClosed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
				test(t, r, c, acks)
				require.Zero(t, acks.acked)
			})
		})
	}
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		acks.ackErr = errBroker
		err := later(r, bg, acks)
		require.ErrorIs(t, err, reconsume.ErrNotAcknowledged)
		require.ErrorIs(t, err, errBroker)
	})
}

// The broker does not answer a message whose delay it refuses, and upstream's producer reports no later answer either.
// So other messages wait until the Reconsumer knows about the refusal, and are published once.
func TestRefusedDelayHoldsUpOtherMessagesOnce(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		limit := time.Minute
		c.lost = func(m *pulsar.ProducerMessage) bool { return m.DeliverAfter > limit }
		after := func(ctx context.Context, d time.Duration) error {
			return r.LaterAfter(ctx, pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, d, nil)
		}
		require.NoError(t, after(bg, time.Second))
		begin := time.Now()
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() {
				assert.ErrorIs(t, after(bg, time.Hour), reconsume.ErrDelayRefused)
				assert.Equal(t, 5100*time.Millisecond, time.Since(begin))
			})
		}
		synctest.Wait()
		require.ErrorContains(t, after(within(time.Second), time.Second), "a message before it has no answer")
		for range 100 {
			require.NoError(t, after(bg, time.Second))
		}
		calls.Wait()
		asked := time.Now()
		require.Equal(t, 5100*time.Millisecond, asked.Sub(begin))
		require.ErrorIs(t, after(bg, time.Hour), reconsume.ErrDelayRefused)
		require.ErrorIs(t, after(bg, 2*time.Hour), reconsume.ErrDelayRefused)
		require.Equal(t, asked, time.Now(), "a refusal was not remembered")
		require.NoError(t, after(bg, time.Minute), "the producer was not replaced")
		require.NoError(t, after(bg, 30*time.Second))
		limit = 10 * time.Second // from now on
		require.ErrorIs(t, after(within(5*time.Second), time.Minute), context.DeadlineExceeded)
		require.NoError(t, after(bg, 10*time.Second))
		require.ErrorIs(t, after(bg, time.Minute), reconsume.ErrDelayRefused)
		require.NoError(t, after(bg, 10*time.Second))
		require.Equal(t, 105, acks.acked)
	})
}

// The broker does not answer a message that is too large. The delays of the messages before and after it do not count
// as refused.
func TestRefusedSizeDoesNotHoldUpOtherMessages(t *testing.T) {
	for name, refused := range map[string]time.Duration{"delayed": time.Minute, "at once": 0} {
		t.Run(name, func(t *testing.T) {
			run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
				c.lost = func(m *pulsar.ProducerMessage) bool { return len(m.Payload) > 6000 }
				after := func(d time.Duration, bytes int) error {
					return r.LaterAfter(bg, pulsar.ConsumerMessage{Consumer: acks,
						Message: message{payload: make([]byte, bytes)}}, d, nil)
				}
				var calls sync.WaitGroup
				begin := time.Now()
				calls.Go(func() { assert.ErrorIs(t, after(refused, 7000), reconsume.ErrDelayRefused) })
				for _, bytes := range []int{1, 100, 5000} {
					synctest.Wait()
					calls.Go(func() { assert.NoError(t, after(time.Minute, bytes)) })
				}
				calls.Wait()
				require.Equal(t, 5100*time.Millisecond, time.Since(begin))
				require.NoError(t, after(time.Minute, 5000))
				require.NoError(t, after(time.Hour, 6000))
				require.ErrorIs(t, after(time.Minute, 8000), reconsume.ErrDelayRefused)
				require.NoError(t, after(time.Hour, 100))
				require.Equal(t, 5100*time.Millisecond, time.Since(begin), "a refusal was not remembered")
				require.ErrorContains(t, after(time.Minute, 6500), " bytes",
					"the broker was not asked about a smaller message")
				require.Equal(t, 10200*time.Millisecond, time.Since(begin))
				require.Len(t, c.sent[retries], 6)
				require.Equal(t, 6, acks.acked)
			})
		})
	}
}

// A topic's maxMessageSize is less than every topic is assumed to allow. The second refusal is noticed, and says nothing
// about delays.
func TestRefusedSizeWithoutADelayDoesNotRefuseDelays(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		c.lost = func(m *pulsar.ProducerMessage) bool { return len(m.Payload) > 1000 }
		after := func(d time.Duration, bytes int) error {
			return r.LaterAfter(bg, pulsar.ConsumerMessage{Consumer: acks,
				Message: message{payload: make([]byte, bytes)}}, d, nil)
		}
		require.ErrorContains(t, after(0, 2000), "unknown")
		require.ErrorIs(t, after(0, 2000), reconsume.ErrDelayRefused)
		require.NoError(t, after(time.Minute, 100))
	})
}

// The broker does not answer a dead letter that is too large. It is published again in chunks.
func TestRefusedDeadLetterIsPublishedInChunks(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		c.lost = func(m *pulsar.ProducerMessage) bool { return len(m.Payload) > 6000 }
		dead := func(bytes int) error {
			return r.DeadLetter(bg, pulsar.ConsumerMessage{Consumer: acks,
				Message: message{payload: make([]byte, bytes)}}, nil)
		}
		var calls sync.WaitGroup
		begin := time.Now()
		for _, bytes := range []int{1, 5000, 7000, 100, 5500} {
			calls.Go(func() { assert.NoError(t, dead(bytes)) })
			synctest.Wait()
		}
		calls.Wait()
		require.Equal(t, 5100*time.Millisecond, time.Since(begin))
		require.NoError(t, dead(7000))
		require.Equal(t, 5100*time.Millisecond, time.Since(begin), "a refusal was not remembered")
		require.Len(t, c.sent[deadLetters], 6)
	})
}

// The broker refuses a large message whose caller has stopped waiting.
func TestMessageAfterAnAbandonedOneIsPublished(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		c.lost = func(m *pulsar.ProducerMessage) bool { return len(m.Payload) > 6000 }
		after := func(ctx context.Context, bytes int) error {
			return r.LaterAfter(ctx, pulsar.ConsumerMessage{Consumer: acks,
				Message: message{payload: make([]byte, bytes)}}, time.Minute, nil)
		}
		require.ErrorIs(t, after(within(100*time.Millisecond), 7000), context.DeadlineExceeded)
		require.NoError(t, after(bg, 5000))
	})
}

// The contexts of the callers end sooner than the Reconsumer finds out about a refusal. It finds out all the same.
// Otherwise each such call would hold up the topic again.
func TestRefusalIsNoticedAfterTheCallersContextHasEnded(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		c.lost = func(m *pulsar.ProducerMessage) bool { return m.DeliverAfter > time.Minute }
		after := func(ctx context.Context, d time.Duration) error {
			return r.LaterAfter(ctx, pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, d, nil)
		}
		begin := time.Now()
		require.ErrorIs(t, after(within(2*time.Second), time.Hour), context.DeadlineExceeded)
		require.Equal(t, 2*time.Second, time.Since(begin))
		require.NoError(t, after(bg, time.Second))
		require.Equal(t, 5100*time.Millisecond, time.Since(begin))
		require.ErrorIs(t, after(within(2*time.Second), time.Hour), reconsume.ErrDelayRefused)
		require.Equal(t, 5100*time.Millisecond, time.Since(begin))
	})
}

// The broker answers nothing for a while. When it answers again, every message is published once.
func TestNoMessageCountsAsRefusedWhileTheBrokerIsSilent(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		after := func(d time.Duration) error {
			return r.LaterAfter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, d, nil)
		}
		require.NoError(t, after(time.Second))
		c.away = make(chan struct{})
		var calls sync.WaitGroup
		for range 200 {
			calls.Go(func() { assert.NoError(t, after(time.Minute)) })
		}
		time.Sleep(20 * time.Second)
		c.mu.Lock()
		close(c.away)
		c.away = nil
		c.mu.Unlock()
		calls.Wait()
		require.Len(t, c.sent[retries], 201)
		require.NoError(t, after(time.Minute))
	})
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		c.lost = all
		silent := make(chan struct{})
		time.AfterFunc(time.Second, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.away = silent // from now on the broker does not create a producer either
		})
		err := r.LaterAfter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, time.Minute, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, reconsume.ErrDelayRefused)
		require.ErrorContains(t, err, "reconsume: publishing to "+retries+": whether the message was published is "+
			"unknown: no answer from the broker")
		require.ErrorContains(t, err, "(a message beyond the topic's maxMessageSize gets no answer; this payload has "+
			"6 bytes)")
		close(silent)
	})
}

// The Reconsumer is creating a producer, to find out whether the broker refused the message.
func TestMessageFailsAtOnceWhenTheClientIsClosedMeanwhile(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		c.lost, c.slow = all, 2*time.Second
		time.AfterFunc(8*time.Second, c.Close)
		begin := time.Now()
		err := r.LaterAfter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, time.Minute, nil)
		require.ErrorContains(t, err, "unknown")
		require.Equal(t, 9*time.Second, time.Since(begin))
	})
}

// The connection is lost while the Reconsumer finds out whether the broker refused a message.
func TestOutcomeIsUnknownAfterALostConnection(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		c.lost = func(m *pulsar.ProducerMessage) bool { return m.DeliverAfter > time.Second }
		after := func(d time.Duration) error {
			return r.LaterAfter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, d, nil)
		}
		require.NoError(t, after(time.Second))
		var calls sync.WaitGroup
		calls.Go(func() { assert.ErrorContains(t, after(time.Minute), "unknown") })
		time.AfterFunc(5050*time.Millisecond, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.created[len(c.created)-1].BackOffPolicyFunc()
		})
		calls.Wait()
	})
}

// A namespace begins to refuse a delay that it allowed before. So the first message with this delay does not go alone.
func TestOutcomeOfAMessageBehindARefusedOneIsUnknown(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		after := func(d time.Duration) error {
			return r.LaterAfter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, d, nil)
		}
		require.NoError(t, after(time.Minute))
		c.lost = func(m *pulsar.ProducerMessage) bool { return m.DeliverAfter > time.Second }
		var calls sync.WaitGroup
		calls.Go(func() { assert.ErrorContains(t, after(30*time.Second), "unknown") })
		calls.Go(func() {
			time.Sleep(time.Second)
			assert.ErrorContains(t, after(time.Second), "unknown",
				"the outcome counts as known though the broker may have published the message")
		})
		calls.Wait()
		require.ErrorIs(t, after(30*time.Second), reconsume.ErrDelayRefused)
		require.NoError(t, after(time.Second))
	})
}

// The broker stands still, and afterwards answers slowly. A message with a new delay is published only when all messages
// before it have an answer. So it alone can be refused.
func TestMessageWithANewDelayWaitsForTheOnesBeforeIt(t *testing.T) {
	for _, away := range []time.Duration{0, 7 * time.Second, 20 * time.Second} {
		run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			after := func(d time.Duration) error {
				return r.LaterAfter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, d, nil)
			}
			require.NoError(t, after(0))
			c.pace, c.away = 500*time.Millisecond, make(chan struct{})
			began := time.Now()
			time.AfterFunc(away, func() { close(c.away) })
			c.lost = func(m *pulsar.ProducerMessage) bool {
				if m.DeliverAfter > 0 {
					assert.GreaterOrEqual(t, time.Since(began), away+6*time.Second, "a message before it has no answer")
				}
				return false
			}
			var calls sync.WaitGroup
			for i := range 15 {
				calls.Go(func() { assert.NoError(t, after(time.Duration(i/12)*time.Minute)) })
				synctest.Wait()
			}
			calls.Wait()
			require.Equal(t, 16, acks.acked)
			require.Len(t, c.sent[retries], 16)
			require.Zero(t, c.closed)
		})
	}
}

// The broker stands still. While the Reconsumer creates a producer to find out about a refusal, the connection is lost,
// and the client sends the message again.
func TestMessageSentAgainOverANewConnectionIsNotRefused(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		after := func(d time.Duration) error {
			return r.LaterAfter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, d, nil)
		}
		require.NoError(t, after(time.Second))
		c.pace, c.away = time.Second, make(chan struct{})
		time.AfterFunc(15*time.Second, func() {
			c.created[0].BackOffPolicyFunc()
			close(c.away)
		})
		require.NoError(t, after(time.Minute))
		require.Len(t, c.sent[retries], 2)
		require.NoError(t, after(time.Minute))
	})
}

// The client does not take a message with a new delay for twenty seconds: it waits for a schema's version, or for room
// within its memory limit.
func TestMessageThatTheClientDoesNotTakeIsNotRefused(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		after := func(ctx context.Context) error {
			return r.LaterAfter(ctx, pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, time.Minute, nil)
		}
		c.full = make(chan struct{})
		begin := time.Now()
		require.ErrorIs(t, after(within(2*time.Second)), context.DeadlineExceeded)
		require.Equal(t, 2*time.Second, time.Since(begin))
		time.AfterFunc(18*time.Second, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			close(c.full)
			c.full = nil
		})
		require.NoError(t, after(bg))
		require.NoError(t, after(bg))
	})
}

// The broker answers neither the messages nor the close of their producer.
func TestCloseEndsTheCallThatWaitsForEarlierMessages(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		after := func(d time.Duration) error {
			return r.LaterAfter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, d, nil)
		}
		require.NoError(t, after(time.Second))
		c.away, c.stuck = make(chan struct{}), time.Minute
		var calls sync.WaitGroup
		for _, d := range []time.Duration{time.Second, time.Minute} {
			calls.Go(func() { assert.ErrorIs(t, after(d), reconsume.ErrClosed) })
			synctest.Wait()
		}
		begin := time.Now()
		calls.Go(r.Close)
		calls.Wait()
		require.Equal(t, 500*time.Millisecond, time.Since(begin))
		close(c.away)
		time.Sleep(time.Minute)
	})
}

// The namespace begins to refuse a delay that it allowed before, and the callers do not wait for long.
func TestDeadProducerIsReplacedThoughNoCallerWaitsForLong(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		after := func(wait, d time.Duration) error {
			return r.LaterAfter(within(wait), pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, d, nil)
		}
		require.NoError(t, after(time.Second, time.Minute))
		c.lost = func(m *pulsar.ProducerMessage) bool { return m.DeliverAfter > time.Second }
		require.ErrorContains(t, after(time.Second, time.Minute), "unknown")
		require.ErrorContains(t, after(2*time.Second, time.Second), "not published, as a message before it has no answer")
		require.NoError(t, after(time.Second, time.Second))
	})
}

// The broker answers nothing for a while, and the messages have no new delay.
func TestProducerIsKeptWhileTheBrokerStandsStill(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		later := func() error {
			return r.LaterAfter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, 0, nil)
		}
		require.NoError(t, later())
		c.away = make(chan struct{})
		time.AfterFunc(20*time.Second, func() { close(c.away) })
		require.NoError(t, later())
		require.Zero(t, c.closed)
	})
}

// A broker that creates producers but cannot store messages does not answer the close of a producer either. Upstream
// stops waiting for this answer and reports no error.
func TestNoMessageCountsAsRefusedWhileTheBrokerCannotStore(t *testing.T) {
	for _, operationTimeout := range []time.Duration{3 * time.Second, 30 * time.Second} { // the client's
		run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			c.lost, c.stuck = all, operationTimeout
			err := r.LaterAfter(within(2*time.Minute), pulsar.ConsumerMessage{Consumer: acks, Message: message{}},
				time.Second, nil)
			require.NotErrorIs(t, err, reconsume.ErrDelayRefused)
			require.ErrorContains(t, err, "unknown")
			c.lost, c.stuck = nil, 0
			require.NoError(t, r.LaterAfter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, time.Second,
				nil))
		})
	}
}

// Only one producer of a topic is created at a time: a broker once never answered requests that created initial
// subscriptions at the same moment.
func TestOneProducerOfATopicIsCreatedAtATime(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, _ *reconsume.Reconsumer, c *client, acks *consumer) {
		c.slow = time.Second
		begin := time.Now()
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() {
				r, err := reconsume.New(c, reconsume.Options{Topic: "t", Subscription: "s"})
				assert.NoError(t, err)
				defer r.Close()
				assert.NoError(t, r.DeadLetter(bg, pulsar.ConsumerMessage{Consumer: &consumer{}, Message: message{}},
					nil))
			})
		}
		calls.Wait()
		require.False(t, c.together)
		require.Equal(t, 3*time.Second, time.Since(begin))
	})
}

// A Reconsumer waits while another one creates a producer of the same topic. Close ends the wait.
func TestReconsumerThatIsClosedDoesNotWaitForAnotherOne(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		c.slow = time.Minute
		other, err := reconsume.New(c, reconsume.Options{Topic: "orders", Subscription: "sub"})
		require.NoError(t, err)
		defer other.Close()
		dead := func(r *reconsume.Reconsumer) {
			assert.Error(t, r.DeadLetter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, nil))
		}
		go dead(other)
		synctest.Wait()
		go dead(r)
		synctest.Wait()
		begin := time.Now()
		r.Close()
		require.Equal(t, begin, time.Now())
		time.Sleep(time.Minute)
	})
}

// The broker never answers the request for a producer.
func TestNextProducerIsCreatedAfterACreationThatNeverEnds(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		c.slow = time.Hour
		require.ErrorIs(t, r.DeadLetter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, nil),
			context.DeadlineExceeded)
		synctest.Wait()
		c.mu.Lock()
		c.slow = 0
		c.mu.Unlock()
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, r.DeadLetter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, nil))
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 1, c.closed, "a producer that was created too late was not closed")
	})
}

// Empty messages have a producer of their own.
func TestEmptyMessageIsPublishedAfterARefusedOne(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		c.lost = func(m *pulsar.ProducerMessage) bool { return m.DeliverAfter > time.Minute }
		after := func(ctx context.Context, d time.Duration) error {
			return r.LaterAfter(ctx, pulsar.ConsumerMessage{Consumer: acks, Message: message{payload: []byte{}}}, d,
				nil)
		}
		require.NoError(t, after(bg, time.Second))
		var calls sync.WaitGroup
		calls.Go(func() { assert.ErrorIs(t, after(bg, time.Hour), reconsume.ErrDelayRefused) })
		synctest.Wait()
		require.NoError(t, after(within(20*time.Second), time.Second))
		calls.Wait()
	})
}
