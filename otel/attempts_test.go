package otelredelivery_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/pulsar-redelivery/redelivery"
	otelredelivery "github.com/pulsar-redelivery/redelivery/otel"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// A success on one subscription must not forget the attempts on the other. Attempts at a dead letter are linked to
// those of the subscription that made the dead letter.
func TestAttemptIsLinkedToThePreviousOneOfItsSubscription(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	telemetry, err := otelredelivery.New(otelredelivery.WithPropagator(propagation.TraceContext{}),
		otelredelivery.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))))
	require.NoError(t, err)
	server, err := pulsartest.Start()
	require.NoError(t, err)
	defer server.Close()
	silent := slog.New(slog.DiscardHandler)
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: server.URL(), Logger: plog.NewLoggerWithSlog(silent)})
	require.NoError(t, err)
	defer client.Close()
	middleware := telemetry.Middleware()
	consumers := map[string]*redelivery.Consumer{}
	for subscription, topic := range map[string]string{"billing": "orders", "shipping": "orders", "clerk": "dead",
		"audit": "dead"} {
		opts := pulsar.ConsumerOptions{Topic: topic, SubscriptionName: subscription, Type: pulsar.Shared,
			SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest}
		if topic == "orders" {
			opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 9, DeadLetterTopic: "dead"}
		}
		c, err := redelivery.Subscribe(client, opts, telemetry.Observe(), redelivery.WithLogger(silent),
			redelivery.WithNackRedeliveryDelay(time.Millisecond))
		require.NoError(t, err)
		defer c.Close()
		consumers[subscription] = c
	}
	handle := func(subscription string, result error) {
		t.Helper()
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		w, err := worker.New(consumers[subscription],
			func(context.Context, pulsar.Message) error { stop(); return result },
			worker.WithLogger(silent), worker.WithConcurrency(1), worker.WithMiddleware(middleware))
		require.NoError(t, err)
		require.NoError(t, w.Run(ctx))
	}
	p, err := client.CreateProducer(pulsar.ProducerOptions{Topic: "orders"})
	require.NoError(t, err)
	defer p.Close()
	_, err = p.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte("1")})
	require.NoError(t, err)

	boom := errors.New("boom")
	for _, step := range []struct {
		subscription string
		result       error
	}{{"billing", boom}, {"shipping", boom}, {"billing", boom}, {"shipping", nil}, {"billing", worker.Permanent(boom)},
		{"clerk", boom}, {"audit", boom}, {"clerk", nil}} {
		handle(step.subscription, step.result)
	}
	var got []int // the span that each attempt is linked to
	spans := exporter.GetSpans()
	for _, s := range spans {
		linked := -1
		for _, l := range s.Links {
			for i, other := range spans {
				if other.SpanContext.SpanID() == l.SpanContext.SpanID() {
					linked = i
				}
			}
		}
		got = append(got, linked)
	}
	assert.Equal(t, []int{-1, -1, 0, 1, 2, 4 /* sent to the dead letter topic */, 4, 4, 6}, got)
}

// A consumer of a single partition sees IDs with partition 0. A retry names the ID with the partition.
func TestRetryFromOnePartitionIsLinkedToTheFirstAttempt(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	telemetry, err := otelredelivery.New(otelredelivery.WithPropagator(propagation.TraceContext{}),
		otelredelivery.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))))
	require.NoError(t, err)
	server, silent := pulsartest.NewServer(t), slog.New(slog.DiscardHandler)
	require.NoError(t, server.CreatePartitionedTopic("orders", 4))
	c, err := redelivery.Subscribe(server.Client(t),
		pulsar.ConsumerOptions{Topic: "orders-partition-3", SubscriptionName: "billing", Type: pulsar.Shared,
			SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest, RetryEnable: true},
		redelivery.WithLogger(silent), redelivery.WithNackRedeliveryDelay(time.Millisecond),
		redelivery.WithNackRetryTopic(time.Millisecond))
	require.NoError(t, err)
	defer c.Close()
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	attempts := 0
	w, err := worker.New(c, func(context.Context, pulsar.Message) error {
		if attempts++; attempts == 1 {
			return errors.New("not now")
		}
		stop()
		return nil
	}, worker.WithLogger(silent), worker.WithConcurrency(1), worker.WithMiddleware(telemetry.Middleware()))
	require.NoError(t, err)
	server.Publish(t, "orders-partition-3", &pulsar.ProducerMessage{Payload: []byte("1")})
	require.NoError(t, w.Run(ctx))
	spans := exporter.GetSpans()
	require.Len(t, spans, 2)
	require.Len(t, spans[1].Links, 1)
	assert.Equal(t, spans[0].SpanContext.SpanID(), spans[1].Links[0].SpanContext.SpanID())
}

// Telemetry remembers 10,000 failed attempts. It remembers a new attempt at a message even if it forgets an older
// attempt at this message, or if the message was settled between the two.
func TestOnlyTheNewestFailedAttemptsAreLinked(t *testing.T) {
	const remembered = 10_000
	exporter := tracetest.NewInMemoryExporter()
	telemetry, err := otelredelivery.New(otelredelivery.WithPropagator(propagation.TraceContext{}),
		otelredelivery.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))))
	require.NoError(t, err)
	handler := telemetry.Middleware()(func(ctx context.Context, _ pulsar.Message) error { return ctx.Err() })
	boom, cancel := context.WithCancel(t.Context())
	cancel()
	linked := func(ctx context.Context, number int64) bool {
		exporter.Reset()
		_ = handler(ctx, numbered{id: pulsar.NewMessageID(number, 0, 0, 0)})
		return len(exporter.GetSpans()[0].Links) > 0
	}
	next := int64(1)
	failOthers := func(n int) {
		for range n {
			require.False(t, linked(boom, next))
			next++
		}
	}
	for _, settled := range []bool{false, true} {
		require.False(t, linked(boom, 0))
		if settled {
			require.True(t, linked(t.Context(), 0))
		}
		failOthers(remembered - 2)
		require.Equal(t, !settled, linked(boom, 0), settled)
		failOthers(2) // the last one takes the place of the first attempt
		require.True(t, linked(boom, 0), settled)
		failOthers(remembered)
		require.False(t, linked(boom, 0), settled)
		require.True(t, linked(t.Context(), 0))
	}
}

// numbered is a message of the topic orders, with an ID.
type numbered struct {
	pulsar.Message
	id pulsar.MessageID
}

func (f numbered) ID() pulsar.MessageID        { return f.id }
func (numbered) Topic() string                 { return "orders" }
func (numbered) Properties() map[string]string { return nil }
func (numbered) RedeliveryCount() uint32       { return 0 }
