package metrics_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/metrics"
	"github.com/pulsar-redelivery/redelivery/worker"
	"github.com/pulsar-redelivery/redelivery/worker/workertest"
)

// One handler does not return after its timeout, and another message of its key waits. Then the connection is lost.
func TestWorkerGaugesCountStuckHandlerAndWaitingKeyUntilRunReturns(t *testing.T) {
	for name, options := range map[string][]metrics.Option{"by subscription": nil, "by topic": {metrics.WithTopic()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reg := prometheus.NewRegistry()
				m, err := metrics.New(reg, options...)
				require.NoError(t, err)
				orders := workertest.Setup{
					Redelivery: []redelivery.Option{m.Observe()},
					Worker: []worker.Option{m.ObserveWorker(), worker.WithKeyOrder(),
						worker.WithTimeout(time.Second), worker.WithConcurrency(2)},
				}.Subscription(t)
				expect := func(want float64, name string, labels ...string) {
					t.Helper()
					got, _ := value(t, reg, "redelivery_"+name, labels...)
					assert.InDelta(t, want, got, 0, name)
				}
				release := make(chan struct{})
				w := orders.Start(func(context.Context, pulsar.Message) error { <-release; return nil })
				expect(0, "stuck_handlers")
				orders.Publish(&pulsar.ProducerMessage{Key: "a"}, &pulsar.ProducerMessage{Key: "a"})
				time.Sleep(7 * time.Second)
				expect(1, "handlers_active")
				expect(1, "stuck_handlers")
				expect(1, "key_waiting_messages")
				expect(0, "paused")
				w.Pause()
				expect(1, "paused")
				w.Resume()
				expect(0, "losses_total")
				orders.Reconnect()
				time.Sleep(time.Second)
				expect(1, "losses_total", "why=connection")
				close(release)
				orders.Settle(time.Minute)
				expect(0, "stuck_handlers")
				expect(0, "key_waiting_messages")
				w.Stop()
				expect(1, "losses_total", "why=consumer")
				_, series := value(t, reg, "redelivery_stuck_handlers")
				assert.Zero(t, series)
			})
		})
	}
}

// Tries of a Worker with key order, which nacks nothing in between, count as attempts.
func TestAttemptsOfAKeyedMessageIncludeTriesInTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		m, err := metrics.New(reg)
		require.NoError(t, err)
		orders := workertest.Setup{
			Redelivery: []redelivery.Option{m.Observe()},
			Worker:     []worker.Option{m.ObserveWorker(), worker.WithKeyOrder()},
		}.Subscription(t)
		n := 0
		orders.Start(func(_ context.Context, msg pulsar.Message) error {
			if n++; n < 3 {
				return errors.New("no")
			}
			return nil
		})
		orders.Publish(&pulsar.ProducerMessage{Key: "a"})
		orders.Settle(time.Hour)
		require.InDelta(t, 3, sumOf(t, reg, "redelivery_attempts", "outcome", "acked"), 0)
	})
}
