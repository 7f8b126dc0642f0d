// Package otelredelivery exports OpenTelemetry spans and metrics of Consumers and Workers. It follows the semantic
// conventions for messaging, version 1.40.0, which are in development. The path of the module ends in otel. The package
// has another name, so that one file can import it and OpenTelemetry's package otel:
//
//	import otelredelivery "github.com/pulsar-redelivery/redelivery/otel"
//
// Middleware makes a span "process {topic}" each time a message is handled. The span's parent is the span that the
// producer put into the message's properties. So all attempts are one trace, including those from the retry topic. The
// span links to the previous attempt on the same subscription. The span of a dead letter links to the last attempt on
// the subscription that gave the message up. Links lead only to spans of this process. Middleware also makes the metric
// messaging.process.duration.
//
// Observe makes a span "send {topic}" for each message that is published to the retry topic or the dead letter
// topic. It also makes the metrics messaging.client.consumed.messages, messaging.client.sent.messages and
// messaging.client.operation.duration. Retries and dead letters keep the producer's trace context in their properties.
//
// Observe and ObserveWorker also make the gauges that package metrics has for Consumers and for Workers. Their names
// have a dot in place of the first underscore: redelivery.waiting_messages, and so on. OpenTelemetry's exporter for
// Prometheus turns them into the names of package metrics. redelivery.losses counts the events of
// redelivery.Observer.Lost.
package otelredelivery

import (
	"fmt"
	"reflect"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/semconv/v1.40.0/messagingconv"
	"go.opentelemetry.io/otel/trace"

	"github.com/pulsar-redelivery/redelivery"
)

const scope = "github.com/pulsar-redelivery/redelivery/otel"

// Telemetry serves any number of Consumers and Workers. Make only one for each meter provider: the gauges of a second
// one would replace those of the first. It is safe for concurrent use.
type Telemetry struct {
	settings
	tracer   trace.Tracer
	consumed messagingconv.ClientConsumedMessages
	sent     messagingconv.ClientSentMessages
	took     messagingconv.ClientOperationDuration
	process  messagingconv.ProcessDuration
	losses   metric.Int64Counter
	gauges   gauges
	attempts attempts
}

// Option configures Telemetry.
type Option func(*settings) error

type settings struct {
	tracers    trace.TracerProvider
	meters     metric.MeterProvider
	propagator propagation.TextMapPropagator
}

// WithTracerProvider (default: the global one) sets where spans go.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(s *settings) error {
		if isNil(p) {
			return invalid("WithTracerProvider", "a trace.TracerProvider")
		}
		s.tracers = p
		return nil
	}
}

// WithMeterProvider (default: the global one) sets where metrics go.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(s *settings) error {
		if isNil(p) {
			return invalid("WithMeterProvider", "a metric.MeterProvider")
		}
		s.meters = p
		return nil
	}
}

// WithPropagator (default: the global one) sets the reader of the trace context in a message's properties.
func WithPropagator(p propagation.TextMapPropagator) Option {
	return func(s *settings) error {
		if isNil(p) {
			return invalid("WithPropagator", "a propagation.TextMapPropagator")
		}
		s.propagator = p
		return nil
	}
}

// isNil reports whether p is nil or a nil pointer. OpenTelemetry's functions would panic with either.
func isNil(p any) bool {
	v := reflect.ValueOf(p)
	return p == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

func invalid(option, want string) error {
	return fmt.Errorf("%w: otel: %s is nil, want %s", redelivery.ErrInvalidOption, option, want)
}

// New returns Telemetry. The error is either the meter provider's own, or satisfies errors.Is with
// redelivery.ErrInvalidOption.
func New(options ...Option) (*Telemetry, error) {
	t := &Telemetry{settings: settings{otel.GetTracerProvider(), otel.GetMeterProvider(), otel.GetTextMapPropagator()}}
	for i, option := range options {
		if option == nil {
			return nil, invalid(fmt.Sprintf("option %d", i+1), "an Option")
		}
		if err := option(&t.settings); err != nil {
			return nil, err
		}
	}
	t.tracer = t.tracers.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))
	meter := t.meters.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))
	// the bucket boundaries that the conventions advise
	seconds := metric.WithExplicitBucketBoundaries(.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10)
	var err error
	t.consumed, err = messagingconv.NewClientConsumedMessages(meter)
	if err != nil {
		return nil, err
	}
	t.sent, err = messagingconv.NewClientSentMessages(meter)
	if err != nil {
		return nil, err
	}
	t.took, err = messagingconv.NewClientOperationDuration(meter, seconds)
	if err != nil {
		return nil, err
	}
	t.process, err = messagingconv.NewProcessDuration(meter, seconds)
	if err != nil {
		return nil, err
	}
	t.losses, err = meter.Int64Counter("redelivery.losses", metric.WithUnit("{loss}"),
		metric.WithDescription("Events after which messages that the application has may belong to another consumer."))
	if err != nil {
		return nil, err
	}
	if err := t.gauges.register(meter); err != nil {
		return nil, err
	}
	return t, nil
}
