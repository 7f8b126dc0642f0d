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

// The gauges of a Worker count a stuck handler and another message of its key. After Run the gauges are gone.
func TestWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdkmetric.NewManualReader()
		telemetry, err := otelredelivery.New(otelredelivery.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
		require.NoError(t, err)
		orders := workertest.Setup{
			Redelivery: []redelivery.Option{telemetry.Observe()},
			Worker: []worker.Option{telemetry.ObserveWorker(), worker.WithKeyOrder(),
				worker.WithTimeout(time.Second), worker.WithConcurrency(2)},
		}.Subscription(t)
		is := func(want float64, name string) {
			t.Helper()
			assert.InDelta(t, want, figures(t, reader)["subscription"]["redelivery."+name], 0, name)
		}
		release := make(chan struct{})
		w := orders.Start(func(context.Context, pulsar.Message) error { <-release; return nil })
		orders.Publish(&pulsar.ProducerMessage{Key: "a"}, &pulsar.ProducerMessage{Key: "a"})
		time.Sleep(7 * time.Second)
		is(1, "handlers_active")
		is(1, "stuck_handlers")
		is(1, "key_waiting_messages")
		is(0, "paused")
		is(0, "outage")
		is(0, "memory_limit_reached")
		w.Pause()
		is(1, "paused")
		w.Resume()
		close(release)
		orders.Settle(time.Minute)
		is(0, "stuck_handlers")
		w.Stop()
		assert.NotContains(t, figures(t, reader)["subscription"], "redelivery.stuck_handlers")
	})
}
