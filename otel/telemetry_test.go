package otelredelivery_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/pulsar-redelivery/redelivery"
	otelredelivery "github.com/pulsar-redelivery/redelivery/otel"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// A message fails, is retried through the retry topic, and becomes a dead letter. A consumer handles the dead letter.
// Each attempt must be linked to the previous one, and the message must keep the traceparent of its producer.
func TestSpansFromProducerToDeadLetterAreOneTrace(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	reader := sdkmetric.NewManualReader()
	telemetry, err := otelredelivery.New(otelredelivery.WithTracerProvider(tracers),
		otelredelivery.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))),
		otelredelivery.WithPropagator(propagation.TraceContext{}))
	require.NoError(t, err)

	server, err := pulsartest.Start()
	require.NoError(t, err)
	defer server.Close()
	silent := slog.New(slog.DiscardHandler)
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: server.URL(), Logger: plog.NewLoggerWithSlog(silent)})
	require.NoError(t, err)
	defer client.Close()

	subscribe := func(opts pulsar.ConsumerOptions) *redelivery.Consumer {
		opts.Type, opts.SubscriptionInitialPosition = pulsar.Shared, pulsar.SubscriptionPositionEarliest
		c, err := redelivery.Subscribe(client, opts, telemetry.Observe(), redelivery.WithLogger(silent),
			redelivery.WithNackRedeliveryDelay(10*time.Millisecond), redelivery.WithNackRetryTopic(50*time.Millisecond))
		require.NoError(t, err)
		t.Cleanup(c.Close)
		return c
	}
	c := subscribe(pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing", RetryEnable: true,
		DLQ: &pulsar.DLQPolicy{MaxDeliveries: 9, InitialSubscriptionName: "clerk"}})
	boom := errors.New("boom")
	var parents []string
	run := func(c *redelivery.Consumer, handler worker.Handler, until int) {
		t.Helper()
		handled := make(chan struct{}, 10)
		w, err := worker.New(c, handler, worker.WithLogger(silent), worker.WithConcurrency(1), worker.WithMiddleware(
			func(next worker.Handler) worker.Handler {
				return func(ctx context.Context, msg pulsar.Message) error {
					defer func() { handled <- struct{}{} }()
					parents = append(parents, msg.Properties()["traceparent"])
					return next(ctx, msg)
				}
			}, telemetry.Middleware()))
		require.NoError(t, err)
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		for range until {
			select {
			case <-handled:
			case <-time.After(10 * time.Second):
				t.Error("too few attempts")
			}
		}
		stop()
		require.NoError(t, <-done)
	}

	ctx, producing := tracers.Tracer("test").Start(context.Background(), "send orders",
		trace.WithSpanKind(trace.SpanKindProducer))
	properties := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, properties)
	producing.End()
	p, err := client.CreateProducer(pulsar.ProducerOptions{Topic: "orders"})
	require.NoError(t, err)
	defer p.Close()
	_, err = p.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte("1"), Properties: properties})
	require.NoError(t, err)

	n := 0
	run(c, func(ctx context.Context, _ pulsar.Message) error {
		assert.True(t, trace.SpanContextFromContext(ctx).IsValid())
		switch n++; n {
		case 1:
			return boom // a nack
		case 2:
			return worker.RetryAfter(60*time.Millisecond, boom) // through the retry topic
		default:
			return worker.Permanent(boom)
		}
	}, 3)
	dead := subscribe(pulsar.ConsumerOptions{Topic: "orders-billing-DLQ", SubscriptionName: "clerk", RetryEnable: true})
	run(dead, func(context.Context, pulsar.Message) error { return nil }, 1)

	spans := exporter.GetSpans()
	var names []string
	byName := map[string][]tracetest.SpanStub{}
	for _, s := range spans {
		assert.Equal(t, producing.SpanContext().TraceID(), s.SpanContext.TraceID(), "%s is of another trace", s.Name)
		name := strings.ReplaceAll(s.Name, "persistent://public/default/", "")
		names = append(names, name)
		byName[name] = append(byName[name], s)
		if s.Name != "send orders" {
			assert.Equal(t, producing.SpanContext().SpanID(), s.Parent.SpanID(), name)
		}
	}
	assert.ElementsMatch(t, []string{"send orders", "process orders", "process orders", "send orders-billing-RETRY",
		"process orders-billing-RETRY", "send orders-billing-DLQ", "process orders-billing-DLQ"}, names)
	attempts := append(byName["process orders"], byName["process orders-billing-RETRY"]...)
	attempts = append(attempts, byName["process orders-billing-DLQ"]...)
	for i, s := range attempts {
		var linked []trace.SpanID
		for _, l := range s.Links {
			linked = append(linked, l.SpanContext.SpanID())
		}
		want := []trace.SpanID{producing.SpanContext().SpanID()}
		if i > 0 {
			want = append(want, attempts[i-1].SpanContext.SpanID())
		}
		assert.Equal(t, want, linked, "links of attempt %d", i)
		assert.Equal(t, i < 3, s.Status.Code == codes.Error)
		assert.Contains(t, s.Attributes, attribute.String("messaging.system", "pulsar"))
		assert.Contains(t, s.Attributes, attribute.String("messaging.operation.name", "process"))
		assert.Equal(t, trace.SpanKindConsumer, s.SpanKind)
	}
	for _, parent := range parents {
		assert.Equal(t, properties["traceparent"], parent)
	}
	assert.Len(t, parents, 4)

	var rm metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &rm))
	got := map[string]int64{}
	for _, m := range rm.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				got[m.Name] += p.Value
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				got[m.Name] += int64(p.Count)
				for _, a := range p.Attributes.ToSlice() {
					assert.NotContains(t, a.Value.String(), "-partition-")
				}
			}
		}
	}
	assert.Equal(t, map[string]int64{"messaging.client.consumed.messages": 4, "messaging.client.sent.messages": 2,
		"messaging.client.operation.duration": 3, "messaging.process.duration": 4}, got)
}

func TestNewRefusesNilOptions(t *testing.T) {
	for _, option := range []otelredelivery.Option{nil, otelredelivery.WithTracerProvider(nil),
		otelredelivery.WithMeterProvider(nil),
		otelredelivery.WithPropagator(nil), otelredelivery.WithTracerProvider((*sdktrace.TracerProvider)(nil)),
		otelredelivery.WithMeterProvider((*sdkmetric.MeterProvider)(nil))} {
		_, err := otelredelivery.New(option)
		require.ErrorIs(t, err, redelivery.ErrInvalidOption)
	}
}
