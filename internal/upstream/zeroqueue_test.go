package upstream_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/upstream"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// zero is a Reader of a consumer without a queue, whose Receive returns a message after a second.
type zero struct {
	*upstream.Reader
	calls  int // of Receive
	sent   int // messages that Receive returned
	failed []error
	end    context.CancelFunc // ends the Reader's context
	// called after the second, or when the context of Receive is over; Receive returns its error. A test may set it
	result func(context.Context) error
}

func newZero(t *testing.T) *zero {
	ctx, cancel := context.WithCancel(t.Context())
	z := &zero{end: cancel, result: context.Context.Err}
	consumer := &stub{receive: func(ctx context.Context) (pulsar.Message, error) {
		z.calls++
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
		if err := z.result(ctx); err != nil {
			return nil, err
		}
		z.sent++
		return numbered(z.sent).Message, nil
	}}
	z.Reader = upstream.NewReader(ctx, consumer, 10, func(err error) { z.failed = append(z.failed, err) })
	return z
}

// Wait calls Wait of a connected consumer.
func (z *zero) Wait() <-chan pulsar.ConsumerMessage { return z.Reader.Wait(false) }

// sleep sleeps for d, and then until all goroutines wait.
func (z *zero) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// inZero runs a test in virtual time.
func inZero(t *testing.T, test func(t *testing.T, z *zero)) {
	synctest.Test(t, func(t *testing.T) {
		z := newZero(t)
		defer z.end()
		test(t, z)
	})
}

func TestZeroQueueIsAskedForOneMessageAtATime(t *testing.T) {
	inZero(t, func(t *testing.T, z *zero) {
		require.False(t, z.Has())
		require.Zero(t, z.calls, "Receive was called though no caller waits")
		for range 3 {
			z.Wait()
			synctest.Wait()
		}
		require.Equal(t, 1, z.calls)
		require.Equal(t, 1, entryOf(<-z.Wait(), true))
		z.sleep(time.Hour)
		require.Equal(t, 1, z.calls, "Receive was called though no caller waits")
		require.Equal(t, 2, entryOf(<-z.Wait(), true))
	})
}

func TestZeroQueueKeepsAMessageThatComesWhileNoCallerWaits(t *testing.T) {
	inZero(t, func(t *testing.T, z *zero) {
		z.Wait()
		z.sleep(time.Hour)
		require.True(t, z.Has())
		z.Wait()
		synctest.Wait()
		require.Equal(t, 1, z.calls, "Receive was called though a message is here")
		require.Equal(t, 1, entryOf(z.Next()))
		require.Equal(t, -1, entryOf(z.Next()))
	})
}

func TestRecallEndsReceiveAndKeepsItsMessage(t *testing.T) {
	for _, c := range []struct {
		name   string
		result func(context.Context) error // of a Receive that is recalled
		next   int
		failed int
	}{
		{"nothing came", context.Context.Err, -1, 0},
		{"a message came at that moment", func(context.Context) error { return nil }, 1, 0},
		{"the consumer failed at that moment", func(context.Context) error { return errors.New("closed") }, -1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			inZero(t, func(t *testing.T, z *zero) {
				z.result = c.result
				z.Wait()
				start := time.Now()
				z.Recall()
				require.Zero(t, time.Since(start), "Recall waited though Receive ended at that moment")
				require.Equal(t, 1, z.calls)
				require.Len(t, z.failed, c.failed)
				require.Equal(t, c.next, entryOf(z.Next()))
				z.Recall() // of nothing
			})
		})
	}
}

func TestZeroQueueGoesOnAfterARecall(t *testing.T) {
	inZero(t, func(t *testing.T, z *zero) {
		z.Recall() // before the first call
		z.Wait()
		z.Recall()
		require.Equal(t, 1, entryOf(<-z.Wait(), true))
		require.Equal(t, 2, z.calls)
	})
}

func TestZeroQueueIsNotAskedWhileItReconnects(t *testing.T) {
	inZero(t, func(t *testing.T, z *zero) {
		z.Reader.Wait(true)
		require.Zero(t, z.calls)
		z.Wait()
		z.Reader.Wait(true) // ends the call
		z.sleep(time.Hour)
		require.Zero(t, z.sent)
		require.Equal(t, 1, entryOf(<-z.Wait(), true))
	})
}

func TestForgetDropsTheMessageOfAZeroQueue(t *testing.T) {
	for _, c := range []struct {
		name   string
		before time.Duration // how long the test waits before Forget
	}{
		{"the message came before Forget", 2 * time.Second},
		{"the message comes during Forget", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inZero(t, func(t *testing.T, z *zero) {
				z.result = func(context.Context) error { return nil }
				z.Wait()
				z.sleep(c.before)
				z.Forget()
				require.Equal(t, 1, z.sent)
				require.False(t, z.Has())
				require.Equal(t, 2, entryOf(<-z.Wait(), true))
			})
		})
	}
}

func TestZeroQueueReportsFailures(t *testing.T) {
	broken := errors.New("the consumer is closed")
	for _, c := range []struct {
		name   string
		result func(context.Context) error
		want   error // nil: none is reported
	}{
		{"an error", func(context.Context) error { return broken }, broken},
		{"a panic", func(context.Context) error { panic("no key") }, upstream.ErrUndecryptable},
		{"a call that was canceled", func(context.Context) error { return context.Canceled }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			inZero(t, func(t *testing.T, z *zero) {
				z.result = c.result
				z.Wait()
				z.sleep(2 * time.Second)
				if c.want == nil {
					require.Empty(t, z.failed)
				} else {
					require.Len(t, z.failed, 1)
					require.ErrorIs(t, z.failed[0], c.want)
				}
				z.result = context.Context.Err
				require.Equal(t, 1, entryOf(<-z.Wait(), true), "the next Wait did not call Receive again")
			})
		})
	}
}

func TestZeroQueueEndsWithItsContext(t *testing.T) {
	inZero(t, func(t *testing.T, z *zero) {
		z.Wait()
		z.end()
		synctest.Wait()
		require.Empty(t, z.failed)
		require.False(t, z.Has())
	}) // synctest fails if a goroutine is left
}

func TestRecallOnABrokerLosesNothing(t *testing.T) {
	broker := pulsartest.NewServer(t)
	consumer := subscribe(t, broker.Client(t), newHooks(),
		pulsar.ConsumerOptions{Topic: "t", Type: pulsar.Shared, EnableZeroQueueConsumer: true}, upstream.Plan{})
	waittest.ForZeroQueue()
	r := newReader(t, consumer, 10)
	const n = 30
	publish(t, broker, "t", n)
	seen := map[string]bool{}
	for ctx := waittest.Context(t); len(seen) < n; r.Recall() {
		require.NoError(t, ctx.Err(), "%d of %d came", len(seen), n)
		select {
		case cm := <-r.Wait(false):
			r.Put(cm)
		case <-time.After(time.Millisecond / 10): // often before a message comes
		}
		if cm, ok := r.Next(); ok {
			seen[string(cm.Payload())] = true
		}
	}
}
