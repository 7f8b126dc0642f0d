package otelredelivery_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/pulsar-redelivery/redelivery"
	otelredelivery "github.com/pulsar-redelivery/redelivery/otel"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// figures returns the gauges of this module and the counter redelivery.losses, by subscription and name. The counter's
// name is followed by its attribute why.
func figures(t *testing.T, reader *sdkmetric.ManualReader) map[string]map[string]float64 {
	var rm metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &rm))
	all := map[string]map[string]float64{}
	for _, scope := range rm.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Gauge[int64]:
				addPoints(all, m.Name, data.DataPoints)
			case metricdata.Gauge[float64]:
				addPoints(all, m.Name, data.DataPoints)
			case metricdata.Sum[int64]:
				if m.Name == "redelivery.losses" {
					addPoints(all, m.Name, data.DataPoints)
				}
			}
		}
	}
	return all
}

func addPoints[N int64 | float64](all map[string]map[string]float64, name string, points []metricdata.DataPoint[N]) {
	for _, p := range points {
		subscription, _ := p.Attributes.Value("messaging.destination.subscription.name")
		values := all[subscription.AsString()]
		if values == nil {
			values = map[string]float64{}
			all[subscription.AsString()] = values
		}
		key := name
		if why, ok := p.Attributes.Value("why"); ok {
			key += " " + why.AsString()
		}
		values[key] = float64(p.Value)
	}
}

// Only a subscription with a log of attempts has the gauges of the log.
func TestGaugesAreSumsOverTheOpenConsumersOfASubscription(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	telemetry, err := otelredelivery.New(otelredelivery.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	require.NoError(t, err)
	require.Empty(t, figures(t, reader))
	broker := pulsartest.NewServer(t)
	client := broker.Client(t)
	for _, topic := range []string{"orders", "returns"} {
		broker.Publish(t, topic, &pulsar.ProducerMessage{Payload: []byte("tea")},
			&pulsar.ProducerMessage{Payload: []byte("coffee")})
	}
	subscribe := func(topic, subscription string, options ...redelivery.Option) *redelivery.Consumer {
		c, err := redelivery.Subscribe(client,
			pulsar.ConsumerOptions{Topic: topic, SubscriptionName: subscription, Type: pulsar.Shared,
				SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest}, append(options, telemetry.Observe(),
				redelivery.WithLogger(slog.New(slog.DiscardHandler)), redelivery.WithNackRedeliveryDelay(time.Hour))...)
		require.NoError(t, err)
		return c
	}
	nack := func(c *redelivery.Consumer) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		msg, err := c.Receive(ctx)
		require.NoError(t, err)
		require.NoError(t, c.NackWithReason(msg, errors.New("no luck")))
	}
	plain, logged := subscribe("orders", "billing"), subscribe("orders", "shipping",
		redelivery.WithAttemptLog(redelivery.AttemptLog{}))
	nack(plain)
	nack(logged)
	nack(logged)
	var got map[string]map[string]float64
	require.Eventually(t, func() bool {
		got = figures(t, reader)
		return got["shipping"]["redelivery.attempt_log_records"] == 2
	}, 10*time.Second, 10*time.Millisecond)
	require.EqualValues(t, 1, got["billing"]["redelivery.waiting_messages"])
	require.EqualValues(t, 2, got["shipping"]["redelivery.waiting_messages"])
	require.Zero(t, got["shipping"]["redelivery.ready_messages"])
	require.Positive(t, got["shipping"]["redelivery.oldest_waiting_seconds"])
	require.Positive(t, got["shipping"]["redelivery.buffered_bytes"])
	require.Contains(t, got["billing"], "redelivery.blocked")
	require.Contains(t, got["billing"], "redelivery.unfinished_messages")
	for _, name := range []string{"records", "suspects", "lag_seconds", "lost_sessions"} {
		require.NotContains(t, got["billing"], "redelivery.attempt_log_"+name)
		require.Contains(t, got["shipping"], "redelivery.attempt_log_"+name)
	}
	another := subscribe("returns", "billing")
	nack(another)
	require.EqualValues(t, 2, figures(t, reader)["billing"]["redelivery.waiting_messages"])

	broker.Unload("orders")
	require.Eventually(t, func() bool { return figures(t, reader)["billing"]["redelivery.losses connection"] >= 1 },
		10*time.Second, 10*time.Millisecond)
	for _, c := range []*redelivery.Consumer{plain, another, logged} {
		c.Close()
	}
	got = figures(t, reader)
	require.NotContains(t, got["billing"], "redelivery.waiting_messages")
	require.Positive(t, got["billing"]["redelivery.losses consumer"])
}
