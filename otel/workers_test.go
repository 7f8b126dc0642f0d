package otelredelivery_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/pulsar-redelivery/redelivery"
	otelredelivery "github.com/pulsar-redelivery/redelivery/otel"
	"github.com/pulsar-redelivery/redelivery/worker"
	"github.com/pulsar-redelivery/redelivery/worker/workertest"
)

// One handler does not return after its timeout, and another message of its key waits.
func TestWorkerGaugesCountStuckHandlerAndWaitingKeyUntilRunReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdkmetric.NewManualReader()
		telemetry, err := otelredelivery.New(otelredelivery.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
		require.NoError(t, err)
		orders := workertest.Setup{
			Redelivery: []redelivery.Option{telemetry.Observe()},
			Worker: []worker.Option{telemetry.ObserveWorker(), worker.WithKeyOrder(),
				worker.WithTimeout(time.Second), worker.WithConcurrency(2)},
		}.Subscription(t)
		expect := func(want float64, name string) {
			t.Helper()
			assert.InDelta(t, want, figures(t, reader)["subscription"]["redelivery."+name], 0, name)
		}
		release := make(chan struct{})
		w := orders.Start(func(context.Context, pulsar.Message) error { <-release; return nil })
		orders.Publish(&pulsar.ProducerMessage{Key: "a"}, &pulsar.ProducerMessage{Key: "a"})
		time.Sleep(7 * time.Second)
		expect(1, "handlers_active")
		expect(1, "stuck_handlers")
		expect(1, "key_waiting_messages")
		expect(0, "paused")
		expect(0, "outage")
		expect(0, "memory_limit_reached")
		w.Pause()
		expect(1, "paused")
		w.Resume()
		close(release)
		orders.Settle(time.Minute)
		expect(0, "stuck_handlers")
		w.Stop()
		assert.NotContains(t, figures(t, reader)["subscription"], "redelivery.stuck_handlers")
	})
}
