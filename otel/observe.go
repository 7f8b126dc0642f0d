package otelredelivery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/semconv/v1.40.0/messagingconv"
	"go.opentelemetry.io/otel/trace"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/worker"
)

var system = messagingconv.SystemPulsar

// Observe returns an option for redelivery.Subscribe, SubscribeWith and Wrap that adds all spans and metrics except
// those of Middleware and ObserveWorker. Any number of Consumers may share it.
func (t *Telemetry) Observe() redelivery.Option {
	return redelivery.WithObserver(redelivery.Observer{
		Subscribed: func(c *redelivery.Consumer) { t.gauges.consumers.Store(c, &consumer{Consumer: c}) },
		Closed:     func(c *redelivery.Consumer) { t.gauges.consumers.Delete(c) },
		Delivered:  t.delivered,
		Settled:    t.settled,
		Lost: func(e redelivery.Lost) {
			t.losses.Add(context.Background(), 1, metric.WithAttributes(semconv.MessagingSystemPulsar,
				semconv.MessagingDestinationSubscriptionName(valid(e.Subscription)),
				attribute.String("why", string(e.Why))))
		},
	})
}

// ObserveWorker returns an option for worker.New and worker.NewBatch that adds the gauges of Workers. Any number of
// Workers may share it. A Worker's gauges also need Observe on its Consumer, and end when the Worker's Run returns or
// the Consumer is closed.
func (t *Telemetry) ObserveWorker() worker.Option {
	withConsumer := func(c *redelivery.Consumer, do func(*consumer)) {
		if x, ok := t.gauges.consumers.Load(c); ok {
			do(x.(*consumer))
		}
	}
	return worker.WithObserver(worker.Observer{
		Handling: func(e worker.Handling) { withConsumer(e.Consumer, func(c *consumer) { c.handlers.Add(1) }) },
		Handled:  func(e worker.Handled) { withConsumer(e.Consumer, func(c *consumer) { c.handlers.Add(-1) }) },
		Running: func(e worker.Running) {
			withConsumer(e.Consumer, func(c *consumer) {
				if e.Running {
					c.workers.Store(e.Worker, nil)
				} else {
					c.workers.Delete(e.Worker)
				}
			})
		},
	})
}

func (t *Telemetry) delivered(e redelivery.Delivered) {
	t.consumed.Add(context.Background(), 1, "receive", system, eventAttributes(e.Event)...)
}

// settled records the metrics of an acknowledgement or a published message. For a published message it also makes a
// span.
func (t *Telemetry) settled(e redelivery.Settled) {
	ctx, attrs := context.Background(), eventAttributes(e.Event)
	name, kind := "ack", messagingconv.OperationTypeSettle
	switch e.Outcome {
	case redelivery.Reconsumed, redelivery.DeadLettered:
		name, kind = "send", messagingconv.OperationTypeSend
		if e.To != "" {
			attrs = []attribute.KeyValue{semconv.MessagingDestinationName(valid(e.To))}
		}
	case redelivery.Nacked, redelivery.Snoozed, redelivery.TimedOut:
		return // the Consumer sends no command to the broker now
	case redelivery.Acked, redelivery.Discarded:
	}
	if e.Err != nil {
		_, kind := describe(e.Err)
		attrs = append(attrs, kind)
	}
	t.took.Record(ctx, e.Took.Seconds(), name, system, append(attrs, t.took.AttrOperationType(kind))...)
	if name == "send" {
		t.sent.Add(ctx, 1, name, system, attrs...)
		t.sentSpan(e)
	}
}

// sentSpan makes the span of a published retry or dead letter.
func (t *Telemetry) sentSpan(e redelivery.Settled) {
	if e.Message == nil {
		return
	}
	now := time.Now()
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindProducer), trace.WithTimestamp(now.Add(-e.Took)),
		trace.WithAttributes(semconv.MessagingSystemPulsar, semconv.MessagingOperationTypeSend,
			semconv.MessagingOperationName("send"),
			semconv.MessagingDestinationName(valid(e.To)), semconv.MessagingMessageID(e.ID.String())),
	}
	if e.Reason != "" {
		options = append(options, trace.WithAttributes(attribute.String("redelivery.dead_letter.reason",
			string(e.Reason))))
	}
	if previous := t.attempts.last(e.Message, e.Subscription); previous.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: previous}))
	}
	_, span := t.tracer.Start(t.producer(context.Background(), e.Message), "send "+valid(e.To), options...)
	if e.Err != nil {
		text, kind := describe(e.Err)
		span.SetStatus(codes.Error, text)
		span.SetAttributes(kind)
	}
	span.End(trace.WithTimestamp(now))
}

// describe returns the text and the type of an error, even if a method of the error panics. The error may be a nil
// pointer. The type is the one that a dead letter names; worker.Permanent and worker.RetryAfter do not hide it.
func describe(err error) (text string, kind attribute.KeyValue) {
	defer func() {
		if recover() != nil {
			name := fmt.Sprintf("%T", err)
			text, kind = name+": a method of this error panics", semconv.ErrorTypeKey.String(name)
		}
	}()
	name := publishing.TypeName(err)
	var typed interface{ ErrorType() string } // a convention of OpenTelemetry
	if errors.As(err, &typed) {
		name = typed.ErrorType()
	}
	return valid(err.Error()), semconv.ErrorTypeKey.String(valid(name))
}

// valid returns a text as UTF-8. Errors may quote payloads, and Pulsar accepts any bytes in a name. If one text were
// not UTF-8, an OTLP exporter would drop all data of the same request.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// producer returns ctx with the span of the message's producer.
func (t *Telemetry) producer(ctx context.Context, msg pulsar.Message) context.Context {
	return t.propagator.Extract(ctx, propagation.MapCarrier(msg.Properties()))
}

// Middleware returns a worker.Middleware that makes a span each time a message is handled, and puts the span into the
// handler's context. Make it the first argument of worker.WithMiddleware, so that the span covers the other middleware.
func (t *Telemetry) Middleware() worker.Middleware {
	return func(next worker.Handler) worker.Handler {
		return func(ctx context.Context, msg pulsar.Message) (err error) {
			subscription := worker.Subscription(ctx)
			topic, attrs := valid(topicname.Base(msg.Topic())), topicAttributes(msg.Topic())
			options := []trace.SpanStartOption{
				trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attrs...),
				trace.WithAttributes(semconv.MessagingSystemPulsar, semconv.MessagingOperationTypeProcess,
					semconv.MessagingOperationName("process"), semconv.MessagingMessageID(msg.ID().String()),
					attribute.Int64("redelivery.count", int64(msg.RedeliveryCount()))),
			}
			ctx = t.producer(ctx, msg)
			for _, linked := range []trace.SpanContext{trace.SpanContextFromContext(t.producer(context.Background(),
				msg)), t.attempts.last(msg, subscription)} {
				if linked.IsValid() {
					options = append(options, trace.WithLinks(trace.Link{SpanContext: linked}))
				}
			}
			ctx, span := t.tracer.Start(ctx, "process "+topic, options...)
			began := time.Now()
			err = fmt.Errorf("panicked")
			defer func() {
				switch {
				case err == nil:
					t.attempts.forget(msg, subscription)
				case !worker.IsSnooze(err): // a snooze is no failure
					t.attempts.remember(msg, subscription, span.SpanContext())
					text, kind := describe(err)
					span.SetStatus(codes.Error, text)
					span.SetAttributes(kind)
					attrs = append(attrs, kind)
				}
				t.process.Record(ctx, time.Since(began).Seconds(), "process", system, attrs...)
				span.End()
			}()
			err = next(ctx, msg)
			return err
		}
	}
}

// eventAttributes returns the attributes of an event: its topic and its subscription.
func eventAttributes(e redelivery.Event) []attribute.KeyValue {
	return append(topicAttributes(e.Topic), semconv.MessagingDestinationSubscriptionName(valid(e.Subscription)))
}

// topicAttributes returns the attributes of a topic, without the partition. Metrics have these attributes, too, and
// would otherwise have one series for each partition.
func topicAttributes(topic string) []attribute.KeyValue {
	return []attribute.KeyValue{semconv.MessagingDestinationName(valid(topicname.Base(topic)))}
}
