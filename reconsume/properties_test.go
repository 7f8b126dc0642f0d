package reconsume_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// The type is what dead letters can be grouped by.
func TestExceptionType(t *testing.T) {
	for want, reason := range map[string]error{
		"*errors.errorString":           fmt.Errorf("a: %w", fmt.Errorf("b: %w", errors.New("c"))),
		"*fs.PathError":                 fmt.Errorf("a: %w", &fs.PathError{Err: errBroker}),
		"syscall.Errno":                 errors.Join(fmt.Errorf("a: %w", syscall.ENOENT), errBroker),
		"context.deadlineExceededError": fmt.Errorf("%w, %w", context.DeadlineExceeded, &fs.PathError{}),
	} {
		run(t, reconsume.Options{OmitCause: true}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			require.NoError(t, r.DeadLetter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, reason))
			props := c.sent[deadLetters][0].Properties
			assert.Equal(t, want, props["EXCEPTION_TYPE"])
			assert.NotContains(t, props, "EXCEPTION_MESSAGE")
		})
	}
}

// broken is an error whose methods panic if it is nil.
type broken struct{ error }

func (b *broken) Unwrap() error { return b.error }

// A dead letter is published even if the methods of its reason panic, as those of a nil pointer do.
func TestReasonThatPanics(t *testing.T) {
	for name, c := range map[string]struct {
		reason     error
		kind, text string
	}{
		"exported":    {(*fs.PathError)(nil), "*fs.PathError", "*fs.PathError, whose Error panics"},
		"not":         {(*broken)(nil), "*reconsume_test.broken", "*reconsume_test.broken, whose Error panics"},
		"wrapped":     {fmt.Errorf("a: %w", (*broken)(nil)), "*reconsume_test.broken", "a: <nil>"},
		"joined":      {errors.Join((*broken)(nil)), "*reconsume_test.broken", "*errors.joinError, whose Error panics"},
		"of no error": {&broken{}, "*reconsume_test.broken", "*reconsume_test.broken, whose Error panics"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, cl *client, acks *consumer) {
				require.NoError(t, r.DeadLetter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, c.reason))
				props := cl.sent[deadLetters][0].Properties
				assert.Equal(t, c.kind, props["EXCEPTION_TYPE"])
				assert.Equal(t, c.text, props["EXCEPTION_MESSAGE"])
				assert.Equal(t, 1, acks.acked)
			})
		})
	}
}
