package otelredelivery_test

import (
	"context"
	"errors"
	"io/fs"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	otelredelivery "github.com/pulsar-redelivery/redelivery/otel"
)

type message struct{ pulsar.Message }

func (message) ID() pulsar.MessageID          { return pulsar.NewMessageID(3, 4, 0, 1) }
func (message) Topic() string                 { return "orders" }
func (message) Properties() map[string]string { return nil }
func (message) RedeliveryCount() uint32       { return 0 }

// The methods of a nil pointer that is returned as an error may panic. Its span ends all the same.
func TestErrorThatPanics(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	telemetry, err := otelredelivery.New(otelredelivery.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))))
	require.NoError(t, err)
	var path *fs.PathError
	err = telemetry.Middleware()(func(context.Context, pulsar.Message) error { return path })(context.Background(), message{})
	assert.Equal(t, error(path), err) // for the Worker to judge
	require.Len(t, exporter.GetSpans(), 1)
	span := exporter.GetSpans()[0]
	assert.Equal(t, sdktrace.Status{Code: codes.Error, Description: "*fs.PathError, of which a method panics"}, span.Status)
	assert.Contains(t, span.Attributes, attribute.String("error.type", "*fs.PathError"))
}

// An error may quote a payload, of any bytes. OTLP has only UTF-8: with another text an exporter would drop all spans that it was to send.
func TestErrorThatIsNotText(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	telemetry, err := otelredelivery.New(otelredelivery.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))))
	require.NoError(t, err)
	quoted := errors.New("no order: \xff\xfe")
	err = telemetry.Middleware()(func(context.Context, pulsar.Message) error { return quoted })(context.Background(), message{})
	assert.Equal(t, quoted, err)
	require.Len(t, exporter.GetSpans(), 1)
	assert.Equal(t, sdktrace.Status{Code: codes.Error, Description: "no order: \uFFFD"}, exporter.GetSpans()[0].Status)
}
