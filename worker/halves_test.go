package worker_test

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// The handler hangs with the first half of a batch. Another slot takes the place of the hanging one, and gets the other
// half.
func TestOtherHalfOfABatchIsHandledWhileOneHangs(t *testing.T) {
	virtually(t, withDeadLetters(5), func(t *rig) {
		released := make(chan struct{})
		var calls atomic.Int32
		_, stop := t.startBatch(worker.Batch{MaxMessages: 4}, func(_ context.Context, msgs []pulsar.Message) error {
			if calls.Add(1) <= 2 {
				return errTest
			}
			if strings.Contains(text(msgs), "hang") {
				<-released
			}
			return nil
		}, worker.WithConcurrency(2), worker.WithTimeout(time.Second), worker.WithStuckLimit(5*time.Second))
		t.publish("hang", "b", "c", "d")
		t.sleep(time.Hour)
		assert.Subset(t, t.broker.Acked("orders"), []string{"c", "d"})
		close(released)
		require.NoError(t, stop())
	}, redelivery.WithNackRedeliveryDelay(time.Second), redelivery.WithAckTimeout(10*time.Second))
}

// A batch of old messages that fails as a whole is halved until the failing message is alone.
func TestOnlyTheFailingMessageOfAnOldBatchBecomesADeadLetter(t *testing.T) {
	virtually(t, withDeadLetters(5), func(t *rig) {
		t.publish("a", "b", "c", "bad", "d", "e", "f", "g", "h", "i")
		t.sleep(2 * time.Hour)
		w, stop := t.startBatch(worker.Batch{MaxMessages: 10}, func(_ context.Context, msgs []pulsar.Message) error {
			if strings.Contains(text(msgs), "bad") {
				return errTest
			}
			return nil
		}, worker.WithMaxAge(time.Hour))
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []string{"bad: older than 1h0m0s: no luck"}, t.letters())
		require.Equal(t, worker.Stats{Succeeded: 9, Permanent: 1, Expired: 1}, w.Stats())
	})
}

// The log has the failures that Stats.Failed counts. The error of a batch that is halved is not one of them.
func TestErrorOfAHalvedBatchIsNotLogged(t *testing.T) {
	virtually(t, withDeadLetters(3), func(t *rig) {
		t.publish("a", "b", "c", "d", "e", "f", "g", "h")
		w, stop := t.startBatch(worker.Batch{MaxMessages: 8}, func(context.Context, []pulsar.Message) error { return errTest })
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Len(t, t.letters(), 8)
		failures := len(t.linesWith("worker: message failed"))
		for _, line := range t.linesWith("more failures like that") {
			_, rest, _ := strings.Cut(line, "failures=")
			text, _, _ := strings.Cut(rest, " ")
			n, err := strconv.Atoi(text)
			require.NoError(t, err)
			failures += n
		}
		require.EqualValues(t, w.Stats().Failed, failures)
	})
}
