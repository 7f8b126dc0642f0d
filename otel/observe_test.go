package otelredelivery_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	otelredelivery "github.com/pulsar-redelivery/redelivery/otel"
	"github.com/pulsar-redelivery/redelivery/worker"
)

type message struct{ pulsar.Message }

func (message) ID() pulsar.MessageID          { return pulsar.NewMessageID(3, 4, 0, 1) }
func (message) Topic() string                 { return "orders" }
func (message) Properties() map[string]string { return nil }
func (message) RedeliveryCount() uint32       { return 0 }

// The error is a nil pointer, so its methods panic.
func TestSpanOfAnErrorThatPanicsHasTheErrorsType(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	telemetry, err := otelredelivery.New(otelredelivery.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))))
	require.NoError(t, err)
	var path *fs.PathError
	err = telemetry.Middleware()(func(context.Context, pulsar.Message) error { return path })(context.Background(),
		message{})
	assert.Equal(t, error(path), err) // Middleware returns the error unchanged: the Worker decides about it
	require.Len(t, exporter.GetSpans(), 1)
	span := exporter.GetSpans()[0]
	assert.Equal(t, sdktrace.Status{Code: codes.Error, Description: "*fs.PathError: a method of this error panics"},
		span.Status)
	assert.Contains(t, span.Attributes, attribute.String("error.type", "*fs.PathError"))
}

// coded is an error that names its type itself, by OpenTelemetry's convention.
type coded struct{ error }

func (coded) ErrorType() string { return "card_declined" }

func TestSpanOfAMarkedErrorHasTheTypeOfItsCause(t *testing.T) {
	for want, err := range map[string]error{
		"*fs.PathError":     worker.Permanent(&fs.PathError{Op: "open", Path: "p", Err: fs.ErrNotExist}),
		"*strconv.NumError": worker.RetryAfter(time.Second, &strconv.NumError{Err: strconv.ErrRange}),
		"card_declined":     worker.Permanent(coded{errors.New("declined")}),
	} {
		exporter := tracetest.NewInMemoryExporter()
		telemetry, newErr := otelredelivery.New(otelredelivery.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))))
		require.NoError(t, newErr)
		_ = telemetry.Middleware()(func(context.Context, pulsar.Message) error { return err })(context.Background(), message{})
		require.Len(t, exporter.GetSpans(), 1)
		assert.Contains(t, exporter.GetSpans()[0].Attributes, attribute.String("error.type", want))
	}
}

// The text of an error may quote a payload, and so contain any bytes. If one text were not UTF-8, an OTLP exporter
// would drop all spans of the same request.
func TestErrorThatIsNotUTF8IsRepairedInTheSpan(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	telemetry, err := otelredelivery.New(otelredelivery.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))))
	require.NoError(t, err)
	quoted := errors.New("no order: \xff\xfe")
	err = telemetry.Middleware()(func(context.Context, pulsar.Message) error { return quoted })(context.Background(),
		message{})
	assert.Equal(t, quoted, err)
	require.Len(t, exporter.GetSpans(), 1)
	assert.Equal(t, sdktrace.Status{Code: codes.Error, Description: "no order: \uFFFD"}, exporter.GetSpans()[0].Status)
}

// The attempt after the Snooze must be linked to the last one that failed.
func TestSnoozeHasNoErrorInItsSpanAndItsDuration(t *testing.T) {
	exporter, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	telemetry, err := otelredelivery.New(otelredelivery.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))),
		otelredelivery.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	require.NoError(t, err)
	for _, result := range []error{errors.New("failed"), fmt.Errorf("not yet: %w", worker.Snooze(time.Second)), nil} {
		err := telemetry.Middleware()(func(context.Context,
			pulsar.Message) error {
			return result
		})(context.Background(), message{})
		assert.Equal(t, result, err)
	}
	spans := exporter.GetSpans()
	require.Len(t, spans, 3)
	assert.Equal(t, codes.Error, spans[0].Status.Code)
	for _, span := range spans[1:] {
		assert.Equal(t, codes.Unset, span.Status.Code, span.Status.Description)
		for _, a := range span.Attributes {
			assert.NotEqual(t, attribute.Key("error.type"), a.Key)
		}
		require.Len(t, span.Links, 1)
		assert.Equal(t, spans[0].SpanContext.SpanID(), span.Links[0].SpanContext.SpanID())
	}

	var rm metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &rm))
	calls := map[string]uint64{} // by type of error
	for _, m := range rm.ScopeMetrics[0].Metrics {
		if durations, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == "messaging.process.duration" {
			for _, p := range durations.DataPoints {
				kind, _ := p.Attributes.Value("error.type")
				calls[kind.AsString()] += p.Count
			}
		}
	}
	assert.Equal(t, map[string]uint64{"*errors.errorString": 1, "": 2}, calls)
}
