package subscribe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// After a failed acknowledgement the application still has the message.
func TestObserverSeesFailedAck(t *testing.T) {
	var x observed
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		inner.FailAcks(errors.New("no"))
		inner.Deliver(1)
		msg := testkit.Receive(t, c)
		require.Error(t, c.Ack(msg))
		inner.FailAcks(nil)
		require.NoError(t, c.Ack(msg))
		x.await(t, "delivered 0 ", "acked after 1 failed", "acked after 1")
	}, redelivery.WithObserver(x.observer()))
}

// Each function of the Observer may call Close and Seek.
func TestObserverMayCloseTheConsumer(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]func(func(*redelivery.Consumer)) redelivery.Observer{
		"delivered": func(f func(*redelivery.Consumer)) redelivery.Observer {
			return redelivery.Observer{Delivered: func(e redelivery.Delivered) { f(e.Consumer) }}
		},
		"acked":     onOutcome(redelivery.Acked),
		"nacked":    onOutcome(redelivery.Nacked),
		"timed out": onOutcome(redelivery.TimedOut),
		"dead":      onOutcome(redelivery.DeadLettered),
		"closed": func(f func(*redelivery.Consumer)) redelivery.Observer {
			return redelivery.Observer{Closed: f}
		},
		"failed": func(f func(*redelivery.Consumer)) redelivery.Observer {
			return redelivery.Observer{Failed: func(e redelivery.Failed) { f(e.Consumer) }}
		},
		"asked": func(f func(*redelivery.Consumer)) redelivery.Observer {
			return redelivery.Observer{Asked: func(e redelivery.Event) { f(e.Consumer) }}
		},
	} {
		for _, byChan := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/chan=%v", name, byChan), func(t *testing.T) {
				t.Parallel()
				b := testkit.NewBroker(t)
				topic := b.NewTopic(0)
				opts := b.Options(topic, pulsar.Shared)
				opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 3}
				closed := make(chan struct{})
				var once sync.Once
				c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(20*time.Millisecond),
					redelivery.WithAckTimeout(200*time.Millisecond),
					redelivery.WithRedeliveryFrom(redelivery.FromBroker),
					redelivery.WithObserver(o(func(c *redelivery.Consumer) {
						once.Do(func() {
							_ = c.Stats()
							_ = c.Seek(pulsar.EarliestMessageID())
							c.Close()
							close(closed)
						})
					})))
				b.Send(topic, 4, false)
				go func() {
					for n := 0; ; n++ {
						msg, err := testkit.Take(t.Context(), c, byChan)
						if err != nil {
							return
						}
						switch n % 4 {
						case 0:
							_ = c.Ack(msg)
						case 1:
							_ = c.DeadLetter(context.Background(), msg, errors.New("boom"))
						case 2:
							c.Nack(msg)
						}
						c.Nack(nil)
					}
				}()
				if name == "closed" {
					c.Close()
				}
				select {
				case <-closed:
				case <-time.After(20 * time.Second):
					require.FailNow(t, "a callback hangs")
				}
			})
		}
	}
}

func onOutcome(outcome redelivery.Outcome) func(func(*redelivery.Consumer)) redelivery.Observer {
	return func(f func(*redelivery.Consumer)) redelivery.Observer {
		return redelivery.Observer{Settled: func(e redelivery.Settled) {
			if e.Outcome == outcome {
				f(e.Consumer)
			}
		}}
	}
}

// Each decision is logged at Debug, and each dead letter also at Info.
func TestDecisionsAreLogged(t *testing.T) {
	t.Parallel()
	// Debug has six lines: delivered, nacked, delivered, dead letter, delivered, acked.
	for level, want := range map[slog.Level]int{slog.LevelDebug: 6,
		slog.LevelInfo: 1} {
		t.Run(level.String(), func(t *testing.T) {
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			opts := b.Options(topic, pulsar.Shared)
			opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 2}
			var log logtest.Buffer
			c := b.Subscribe(opts, redelivery.WithNackRedeliveryBackoff(backoff.Fixed(20*time.Millisecond)),
				redelivery.WithRedeliveryFrom(redelivery.FromMemory),
				redelivery.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level}))))
			b.Send(topic, 1, false)
			c.Nack(testkit.Receive(t, c))
			require.NoError(t, c.DeadLetter(context.Background(), testkit.Receive(t, c), errors.New("boom")))
			b.Send(topic, 1, false)
			require.NoError(t, c.Ack(testkit.Receive(t, c)))
			lines := regexp.MustCompile(`(?m)^.*level=(DEBUG|INFO) msg="redelivery: .*$`).FindAllString(log.String(),
				-1)
			assert.Len(t, lines, want, log.String())
			assert.Regexp(t, `level=INFO msg="redelivery: dead letter" topic=`+topic+` message=\S+ attempts=2 to=\S+ reason=explicit error_type=\*errors.errorString error=boom`, log.String())
		})
	}
}

// The Observer sees copies that the application does not get, and requests.
func TestObserverSeesCopiesAndRequests(t *testing.T) {
	for name, c := range map[string]struct {
		limit int64
		want  []string
	}{
		"buffered": {redelivery.DefaultMemoryLimit, []string{"delivered 0 ", "nacked after 1", "buffered", "acked after 1", "swallowed"}},
		"dropped":  {0, []string{"delivered 0 ", "nacked after 1", "dropped", "acked after 1", "swallowed"}},
	} {
		t.Run(name, func(t *testing.T) {
			var x observed
			var asked atomic.Int32
			testkit.WrapFake(t, func(t *testing.T, c2 *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
				inner.Deliver(1)
				msg := testkit.Receive(t, c2)
				require.NoError(t, c2.NackWithDelay(msg, time.Minute))
				inner.Deliver(1)
				testkit.ReceiveNothing(t, c2, time.Second)
				require.NoError(t, c2.Ack(msg))
				inner.Deliver(1)
				testkit.ReceiveNothing(t, c2, time.Second)
				synctest.Wait()
				x.await(t, c.want...)
				inner.Deliver(2)
				require.NoError(t, c2.NackWithDelay(testkit.Receive(t, c2), time.Second))
				time.Sleep(2 * time.Second)
				synctest.Wait()
				assert.EqualValues(t, 1, asked.Load())
			}, redelivery.WithObserver(x.observer()), redelivery.WithMemoryLimit(c.limit), redelivery.WithRedeliveryFrom(redelivery.FromBroker),
				redelivery.WithObserver(redelivery.Observer{Asked: func(redelivery.Event) { asked.Add(1) }}))
		})
	}
}

// errorThat is an error whose method Error calls a function.
type errorThat func()

func (e errorThat) Error() string { e(); return "no coffee" }

// The message is acknowledged while its failure is being recorded.
func TestAckDuringFailureLeavesNoRecord(t *testing.T) {
	t.Parallel()
	for _, batched := range []bool{false, true} {
		t.Run(fmt.Sprintf("batched %t", batched), func(t *testing.T) {
			t.Parallel()
			const n = 4
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			c := b.Subscribe(b.Options(topic, pulsar.Shared), redelivery.WithAttemptLog(redelivery.AttemptLog{}))
			b.Send(topic, n, batched)
			for range n {
				msg := testkit.Receive(t, c)
				var err error
				require.NoError(t, c.NackWithReason(msg, errorThat(func() { err = c.Ack(msg) })))
				require.NoError(t, err)
			}
			require.Eventually(t, func() bool { return c.AttemptLog().Stats().Records == 0 }, 15*time.Second,
				20*time.Millisecond)
		})
	}
}
