package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// linesWith returns the lines of the log that contain text.
func (r *rig) linesWith(text string) (lines []string) {
	for line := range strings.Lines(r.log.String()) {
		if strings.Contains(line, text) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func TestFailuresOfOneKindAreLoggedOnceAndThenCounted(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			return fmt.Errorf("order %s: no luck", msg.ID())
		}, worker.WithConcurrency(1))
		t.publish("a", "b", "c")
		t.sleep(59 * time.Second)
		require.Len(t, t.linesWith("level=WARN"), 1)
		require.Contains(t, t.linesWith("level=WARN")[0], `msg="worker: message failed" consumer=`)
		require.Contains(t, t.linesWith("level=WARN")[0],
			`topic=persistent://public/default/orders message=1:0:0:0 attempt=1 error="order 1:0:0:0: no luck"`)
		t.sleep(2 * time.Minute)
		lines := t.linesWith("more failures like that")
		require.Contains(t, lines[0], "level=WARN")
		require.Contains(t, lines[0], `failures=`)
		n := len(t.linesWith("level=WARN"))
		require.LessOrEqual(t, n, 4)
		require.NoError(t, stop())
		require.Equal(t, 1, len(t.linesWith("message failed")))
	}, redelivery.WithNackRedeliveryDelay(50*time.Second)) // the messages fail again each minute
}

func TestFloodOfFailuresIsLoggedOnceAMinute(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		w, stop := t.start(func(context.Context, pulsar.Message) error { return errTest })
		t.publish("a", "b", "c", "d", "e")
		t.sleep(10*time.Minute + time.Second)
		failed := w.Stats().Failed
		require.NoError(t, stop())
		require.Greater(t, failed, uint64(5000))
		lines := t.linesWith("worker: m")
		require.LessOrEqual(t, len(lines), 12)
		logged := uint64(1)
		for _, line := range lines[1:] {
			var n uint64
			_, after, _ := strings.Cut(line, "failures=")
			_, err := fmt.Sscan(after, &n)
			require.NoError(t, err, line)
			logged += n
		}
		require.Equal(t, failed, logged)
	}, redelivery.WithNackRedeliveryDelay(500*time.Millisecond))
}

func TestEachKindOfFailureIsLogged(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			switch payload := string(msg.Payload()); payload {
			case "snoozed":
				return worker.Snooze(time.Hour)
			case "good":
				return nil
			default:
				return errors.New(payload)
			}
		}, worker.WithConcurrency(1))
		t.publish("no route to host 10.0.0.1", "no route to host 10.0.0.2", "snoozed", "good", "timeout")
		t.sleep(time.Second)
		require.NoError(t, stop())
		require.Len(t, t.linesWith("message failed"), 2)
		require.Contains(t, t.log.String(), `error=timeout`)
	})
}

func TestFailuresOfTooManyKindsAreCountedTogether(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		_, stop := t.start(func(_ context.Context, msg pulsar.Message) error { return errors.New(string(msg.Payload())) })
		for i := range 1000 {
			t.publish(strings.Map(func(r rune) rune { return r - '0' + 'g' }, fmt.Sprint(i)))
		}
		t.sleep(time.Second)
		require.NoError(t, stop())
		require.Len(t, t.linesWith("message failed"), 101)
		require.Len(t, t.linesWith("more failures of other kinds"), 1)
		require.Contains(t, t.log.String(), "failures=899")
	})
}

func TestFailuresWithOmitCauseAreLoggedWithoutText(t *testing.T) {
	card := fmt.Errorf("card 4111: %w", errTest)
	for name, c := range map[string]struct {
		handler worker.BatchHandler
		line    string
	}{
		"an error":                         {func(context.Context, []pulsar.Message) error { return card }, "message failed"},
		"a PauseFor":                       {func(context.Context, []pulsar.Message) error { return worker.PauseFor(time.Minute, card) }, "asked for a pause"},
		"a panic":                          {func(context.Context, []pulsar.Message) error { panic(card) }, "worker: panic"},
		"a BatchError with a wrong index":  {func(context.Context, []pulsar.Message) error { return worker.BatchError{7: card} }, "message failed"},
		"an error after the drain timeout": {func(ctx context.Context, _ []pulsar.Message) error { <-ctx.Done(); return card }, "left to the broker"},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				_, stop := t.startBatch(worker.Batch{}, c.handler)
				t.publish("a")
				t.sleep(time.Second)
				require.NoError(t, stop())
				require.Len(t, t.linesWith(c.line), 1)
				require.NotContains(t, t.log.String(), "4111")
				require.Contains(t, t.linesWith(c.line)[0], "error_type=*")
			}, redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 9, OmitCause: true}))
		})
	}
}

// If each were logged, an outage could leave a line for each of its messages.
func TestMessagesThatAreLeftAreLoggedOnceAndThenCounted(t *testing.T) {
	virtually(t, exclusive(5), func(t *rig) {
		for range 100 {
			t.publish("a")
		}
		w, stop := t.start(func(context.Context, pulsar.Message) error { return errTest },
			worker.WithPauseOnFailure(10, 0.9, backoff.Fixed(10*time.Second)))
		t.sleep(5 * time.Minute)
		require.NoError(t, stop())
		require.Greater(t, w.Stats().Left, uint64(90))
		require.Len(t, t.linesWith("a message is left to the broker"), 1)
		require.Contains(t, t.linesWith("more messages are left to the broker")[0], fmt.Sprint("messages=", w.Stats().Left-1))
	})
}

// broken is an error whose method Error panics.
type broken struct{}

func (broken) Error() string { panic("no text") }

func TestFailureWhoseErrorPanicsIsLogged(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		_, stop := t.start(func(context.Context, pulsar.Message) error { return broken{} })
		t.publish("a")
		t.sleep(time.Second)
		require.NoError(t, stop())
		require.Len(t, t.linesWith("message failed"), 1)
	})
}

func TestFloodOfPanicsIsLoggedOnceWithTheHandlersFramesFirst(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		var nothing *[3]int
		_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			if string(msg.Payload()) == "nil" {
				return fmt.Errorf("%d", nothing[1])
			}
			defer func() {
				if v := recover(); v != nil {
					panic(v) // once more
				}
			}()
			panic("spilled")
		}, worker.WithConcurrency(1))
		t.publish("a", "b", "c")
		t.sleep(time.Second)
		require.Len(t, t.linesWith("worker: panic"), 1)
		require.Contains(t, t.linesWith("worker: panic")[0], `]:\ngithub.com/pulsar-redelivery/redelivery/worker_test.Test`)
		t.publish("nil")
		t.sleep(time.Second)
		require.NoError(t, stop())
		require.Len(t, t.linesWith("worker: panic"), 2)
		require.Contains(t, t.linesWith("worker: panic")[1], `]:\ngithub.com/pulsar-redelivery/redelivery/worker_test.Test`)
		require.Len(t, t.linesWith("more panics like that"), 1)
		require.Empty(t, t.linesWith("message failed"))
	})
}

func TestStuckHandlerIsLoggedWithItsStack(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		release := make(chan struct{})
		_, stop := t.start(func(context.Context, pulsar.Message) error { hang(release); return nil },
			worker.WithTimeout(time.Second), worker.WithConcurrency(2))
		t.publish("a", "b")
		t.sleep(7 * time.Second)
		lines := t.linesWith("a handler is stuck")
		stacks := t.linesWith("stack=")
		close(release)
		require.NoError(t, stop())
		require.Len(t, lines, 2)
		require.Len(t, stacks, 1) // the stacks of all goroutines are collected once a minute
		require.Contains(t, stacks[0], "worker_test.hang(")
	})
}

//go:noinline
func hang(until chan struct{}) { <-until }

func TestStuckHandlerWithoutATimeoutIsLoggedAtTheEnd(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		release := make(chan struct{})
		_, stop := t.start(func(context.Context, pulsar.Message) error { hang(release); return nil }, worker.WithDrainTimeout(0))
		t.publish("a")
		t.sleep(time.Second)
		require.Error(t, stop())
		require.Len(t, t.linesWith("worker_test.hang("), 1)
		close(release)
	}, redelivery.WithNackRedeliveryBackoff(backoff.Fixed(time.Second)))
}
