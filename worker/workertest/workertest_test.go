package workertest_test

import (
	"context"
	"errors"
	"io/fs"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
	"github.com/pulsar-redelivery/redelivery/worker/workertest"
)

var errDown = errors.New("no answer")

// handle ends in the way that the payload names.
func handle(_ context.Context, msg pulsar.Message) error {
	switch string(msg.Payload()) {
	case "good":
		return nil
	case "bad":
		return worker.Permanent(errors.New("no such order"))
	case "busy":
		if msg.RedeliveryCount() == 0 {
			return worker.RetryAfter(time.Hour, errors.New("too many requests"))
		}
		return nil
	case "exits":
		runtime.Goexit()
	case "panics":
		panic("oops")
	case "slow":
		time.Sleep(time.Minute)
		return nil
	}
	return errDown
}

func message(payload string) *pulsar.ProducerMessage {
	return &pulsar.ProducerMessage{Payload: []byte(payload)}
}

func TestRunReturnsTheFateAtEachDelivery(t *testing.T) {
	for name, c := range map[string]struct {
		setup   workertest.Setup
		payload string
		want    []string
	}{
		"good":      {dead3, "good", []string{"acked"}},
		"permanent": {dead3, "bad", []string{"no such order: dead letter: no such order"}},
		"down": {dead3, "down", []string{
			"no answer: back after 1s", "no answer: back after 2s", "no answer: dead letter: no answer"}},
		"busy": {dead3, "busy", []string{"too many requests: back after 1h0m0s", "acked"}},
		"panics": {dead3, "panics", []string{"panic: oops: back after 1s", "panic: oops: back after 2s",
			"panic: oops: dead letter: panic: oops"}},
		"exits": {workertest.Setup{Attempts: 1}, "exits",
			[]string{"the handler called runtime.Goexit: back after 1m0s"}},
		"limited": {workertest.Setup{Attempts: 2}, "down",
			[]string{"no answer: back after 1m0s", "no answer: back after 1m0s"}},
		"limited, at once": {workertest.Setup{Attempts: 2,
			Redelivery: []redelivery.Option{redelivery.WithNackRedeliveryDelay(0)}}, "down",
			[]string{"no answer: back after 0s", "no answer: back after 0s"}},
		"classified": {workertest.Setup{Consumer: dead3.Consumer,
			Worker: []worker.Option{worker.WithClassifier(worker.Permanent)}}, "down",
			[]string{"no answer: dead letter: no answer"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.setup.Run(t, handle, message(c.payload))
			require.Len(t, got, 1)
			require.Equal(t, c.want, got[0].Strings())
		})
	}
}

var dead3 = workertest.Setup{
	Consumer:   pulsar.ConsumerOptions{Type: pulsar.Shared, DLQ: &pulsar.DLQPolicy{MaxDeliveries: 3}},
	Redelivery: []redelivery.Option{redelivery.WithNackRedeliveryBackoff(backoff.Exponential{})},
}

func TestRunHandlesEachMessageByItself(t *testing.T) {
	got := dead3.Run(t, handle, message("good"), message("slow"), message("bad"))
	require.Len(t, got, 3)
	require.True(t, got[0][0].Acked)
	require.Equal(t, time.Minute, got[1][0].Took)
	require.True(t, got[2][0].Dead)
	require.Equal(t, "no such order", got[2][0].Reason)
}

func TestRunOnEverySubscriptionType(t *testing.T) {
	for _, kind := range []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Shared, pulsar.Failover, pulsar.KeyShared} {
		setup := dead3
		setup.Consumer.Type = kind
		got := setup.Run(t, handle, message("down"))
		require.Equal(t, []string{"no answer: back after 1s", "no answer: back after 2s",
			"no answer: dead letter: no answer"},
			got[0].Strings())
	}
}

func TestRunDecodesMessagesByTheSchema(t *testing.T) {
	type order struct{ ID int }
	setup := workertest.Setup{Consumer: pulsar.ConsumerOptions{Schema: pulsar.NewJSONSchema(
		`{"type":"record","name":"order","fields":[{"name":"ID","type":"int"}]}`, nil)}}
	got := setup.Run(t, func(_ context.Context, msg pulsar.Message) error {
		var o order
		if err := msg.GetSchemaValue(&o); err != nil || o.ID != 7 {
			return worker.Permanent(err)
		}
		return nil
	}, &pulsar.ProducerMessage{Value: order{7}})
	require.Equal(t, []string{"acked"}, got[0].Strings())
}

// A publish time is in whole milliseconds, so a retry waits for one more millisecond: it is never early. With key
// order, messages that have a key are not moved to the retry topic.
func TestRunWithARetryTopicReturnsAttemptsOfTheRetry(t *testing.T) {
	for name, c := range map[string]struct {
		options []worker.Option
		key     string
		back    string
		topic   string
	}{
		"moved":        {nil, "k", "1h0m0.001s", "topic-subscription-RETRY"},
		"in key order": {[]worker.Option{worker.WithKeyOrder()}, "k", "1h0m0s", "topic"},
		"in key order, but no key": {[]worker.Option{worker.WithKeyOrder()}, "", "1h0m0.001s",
			"topic-subscription-RETRY"},
	} {
		t.Run(name, func(t *testing.T) {
			setup := workertest.Setup{
				Consumer:   pulsar.ConsumerOptions{Type: pulsar.Shared, RetryEnable: true},
				Redelivery: []redelivery.Option{redelivery.WithNackRetryTopic(time.Minute)},
				Worker:     c.options,
			}
			var topics []string
			got := setup.Run(t, func(_ context.Context, msg pulsar.Message) error {
				topics = append(topics, msg.Topic())
				if len(topics) == 1 {
					return worker.RetryAfter(time.Hour, errDown)
				}
				return nil
			}, &pulsar.ProducerMessage{Payload: []byte("tea"), Key: c.key})
			require.Equal(t, []string{"no answer: back after " + c.back, "acked"}, got[0].Strings())
			const namespace = "persistent://public/default/"
			require.Equal(t, []string{namespace + "topic", namespace + c.topic}, topics)
		})
	}
}

// The handler is slower than the ack timeout. Its result counts.
func TestRunCallsASlowHandlerOnceAtATime(t *testing.T) {
	setup := workertest.Setup{Redelivery: []redelivery.Option{redelivery.WithAckTimeout(10 * time.Second)},
		Consumer: pulsar.ConsumerOptions{Type: pulsar.Shared}}
	var calls atomic.Int32
	got := setup.Run(t, func(context.Context, pulsar.Message) error {
		if calls.Add(1) == 1 {
			time.Sleep(25 * time.Second)
			return errors.New("slow")
		}
		return nil
	}, &pulsar.ProducerMessage{Payload: []byte("x")})
	require.Equal(t, []string{"slow: back after 1m0s", "acked"}, got[0].Strings())
}

func TestRunReportsAPanicOfAMiddlewareLikeOneOfTheHandler(t *testing.T) {
	setup := workertest.Setup{
		Consumer: pulsar.ConsumerOptions{DLQ: &pulsar.DLQPolicy{MaxDeliveries: 1}},
		Worker: []worker.Option{worker.WithMiddleware(func(worker.Handler) worker.Handler {
			return func(context.Context, pulsar.Message) error { panic("no header") }
		})},
	}
	got := setup.Run(t, handle, &pulsar.ProducerMessage{Payload: []byte("good")})
	require.Equal(t, []string{"panic: no header: dead letter: panic: no header"}, got[0].Strings())
	var panicked *worker.PanicError
	require.ErrorAs(t, got[0][0].Err, &panicked)
	require.Contains(t, string(panicked.Stack), "TestRunReportsAPanicOfAMiddlewareLikeOneOfTheHandler")
}

// Methods of a nil pointer panic.
func TestRunReportsAnErrorWhoseMethodsPanic(t *testing.T) {
	handle := func(context.Context, pulsar.Message) error {
		var err *fs.PathError
		return err
	}
	got := dead3.Run(t, handle, message("down"))[0]
	require.Len(t, got, 3)
	for _, attempt := range got {
		require.False(t, attempt.Open)
		require.IsType(t, &fs.PathError{}, attempt.Err)
	}
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 0},
		[]time.Duration{got[0].Back, got[1].Back, got[2].Back})
	require.True(t, got[2].Dead)
	require.Contains(t, got[2].Reason, "an error of type *fs.PathError")
}
