package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

var errOther = errors.New("other")

// If policyFor returns nil, the delay comes from the Consumer's policy.
func TestDelayComesFromThePolicyThatPolicyForReturns(t *testing.T) {
	hours := backoff.Exponential{Min: time.Hour, Max: 8 * time.Hour}
	for name, c := range map[string]struct {
		policyFor func(pulsar.Message, error) backoff.RedeliveryBackoff
		returns   error
		want      []time.Duration
	}{
		"by error": {func(_ pulsar.Message, err error) backoff.RedeliveryBackoff {
			if errors.Is(err, errTest) {
				return hours
			}
			return nil
		}, errTest, []time.Duration{0, time.Hour, 3 * time.Hour}},
		"by message": {func(msg pulsar.Message, _ error) backoff.RedeliveryBackoff {
			return backoff.Fixed(time.Duration(len(msg.Payload())) * time.Hour)
		}, errTest, []time.Duration{0, 3 * time.Hour, 6 * time.Hour}},
		"nil": {func(pulsar.Message, error) backoff.RedeliveryBackoff { return nil }, errTest, []time.Duration{0, time.Minute, 2 * time.Minute}},
		"negative": {func(pulsar.Message, error) backoff.RedeliveryBackoff {
			return backoff.Func(func(uint32) time.Duration { return -1 })
		}, errTest, []time.Duration{0, 0, 0}},
		"RetryAfter": {func(pulsar.Message, error) backoff.RedeliveryBackoff { return hours }, worker.RetryAfter(time.Second, errTest), []time.Duration{0, time.Second, 2 * time.Second}},
	} {
		for order, options := range map[string][]worker.Option{"": nil, " in key order": {worker.WithKeyOrder()}} {
			t.Run(name+order, func(t *testing.T) {
				virtually(t, withDeadLetters(3), func(t *rig) {
					calls := newCalls()
					w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
						calls.note(msg)
						return errors.Join(c.returns)
					}, append(options, worker.WithPolicy(c.policyFor))...)
					t.broker.Publish("orders", &pulsar.ProducerMessage{Payload: []byte("tea"), Key: "a"})
					t.sleep(24 * time.Hour)
					require.NoError(t, stop())
					require.Equal(t, c.want, calls.times())
					require.Len(t, t.letters(), 1)
					require.Equal(t, worker.Stats{Failed: 3}, w.Stats())
				}, redelivery.WithNackRedeliveryDelay(time.Minute), redelivery.WithAckTimeout(10*time.Second))
			})
		}
	}
}

// policyFor gets the classifier's error.
func TestEachMessageOfABatchHasAPolicyOfItsOwn(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		t.publish("a")
		t.publish("b")
		var got []string
		began := time.Now()
		_, stop := t.startBatch(worker.Batch{}, func(_ context.Context, msgs []pulsar.Message) error {
			got = append(got, time.Since(began).Truncate(time.Second).String()+" "+text(msgs))
			if len(got) == 1 {
				return worker.BatchError{0: errTest, 1: errors.New("unknown")}
			}
			return nil
		}, worker.WithClassifier(func(err error) error {
			if errors.Is(err, errTest) {
				return err
			}
			return errOther
		}), worker.WithPolicy(func(_ pulsar.Message, err error) backoff.RedeliveryBackoff {
			if errors.Is(err, errOther) {
				return backoff.Fixed(time.Hour)
			}
			return backoff.Fixed(time.Second)
		}))
		t.sleep(2 * time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []string{"0s a b", "1s a", "1h0m0s b"}, got)
	})
}

func TestInvalidPolicyIsRefused(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		_, err := worker.New(t.consumer, succeed, worker.WithPolicy(nil))
		require.ErrorIs(t, err, redelivery.ErrInvalidOption)
	})
}
