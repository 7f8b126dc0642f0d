package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// exiting calls runtime.Goexit in one of ten calls of what it is for, for half an hour.
type exiting struct {
	of    string
	until time.Time
	mu    sync.Mutex
	rng   *rand.Rand
}

func (x *exiting) maybe(who string) {
	x.mu.Lock()
	exit := who == x.of && x.rng.IntN(10) == 0 && time.Now().Before(x.until)
	x.mu.Unlock()
	if exit {
		runtime.Goexit()
	}
}

func (x *exiting) policy(who string) backoff.RedeliveryBackoff {
	return backoff.Func(func(uint32) time.Duration {
		x.maybe(who)
		return time.Second
	})
}

func (x *exiting) BeforeConsume(pulsar.ConsumerMessage)                   { x.maybe("interceptor") }
func (x *exiting) OnAcknowledge(pulsar.Consumer, pulsar.MessageID)        { x.maybe("interceptor") }
func (x *exiting) OnNegativeAcksSend(pulsar.Consumer, []pulsar.MessageID) {}
func (x *exiting) observer() redelivery.Observer {
	return redelivery.Observer{
		Delivered: func(redelivery.Delivered) { x.maybe("delivered") },
		Settled:   func(redelivery.Settled) { x.maybe("settled") },
	}
}
func (x *exiting) workerObserver() worker.Observer {
	return worker.Observer{
		Handling: func(worker.Handling) { x.maybe("handling") },
		Handled:  func(worker.Handled) { x.maybe("handled") },
		Paused:   func(worker.Paused) { x.maybe("paused") },
	}
}

// Policies, observers, interceptors and classifiers end the goroutine that calls them, whatever the Worker is doing: it goes on, and Run
// returns in time.
func TestGoexitAnywhere(t *testing.T) {
	t.Parallel()
	const runs = 20
	for _, who := range []string{"nack policy", "timeout policy", "pause policy", "delivered", "settled", "handling", "handled", "paused", "interceptor", "classifier"} {
		t.Run(who, func(t *testing.T) {
			for seed := range uint64(runs) {
				synctest.Test(t, func(t *testing.T) { goexitAnywhere(t, who, seed) })
			}
		})
	}
}

func goexitAnywhere(t *testing.T, who string, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	x := &exiting{of: who, until: time.Now().Add(30 * time.Minute), rng: rand.New(rand.NewPCG(seed, 2))}
	r := &rig{T: t, log: &logtest.Buffer{}}
	opts, quiet := withDeadLetters(5), slog.New(slog.DiscardHandler)
	opts.Interceptors = pulsar.ConsumerInterceptors{x}
	setup(r, opts, redelivery.WithLogger(quiet), redelivery.WithNackRedeliveryBackoff(x.policy("nack policy")), redelivery.WithObserver(x.observer()),
		redelivery.WithAckTimeout(20*time.Second), redelivery.WithAckTimeoutRedeliveryBackoff(x.policy("timeout policy")))
	options := []worker.Option{worker.WithLogger(quiet), worker.WithObserver(x.workerObserver()), worker.WithConcurrency(1 + rng.IntN(3)), worker.WithDrainTimeout(10 * time.Second),
		worker.WithClassifier(func(err error) error {
			x.maybe("classifier")
			return err
		})}
	if rng.IntN(2) == 0 {
		options = append(options, worker.WithKeyOrder())
	}
	if rng.IntN(2) == 0 || who == "pause policy" {
		options = append(options, worker.WithPauseOnFailure(2, .5, x.policy("pause policy")))
	}
	if rng.IntN(2) == 0 {
		options = append(options, worker.WithTimeout(10*time.Second))
	}
	handled := false // what is published at last
	w, err := worker.New(r.consumer, func(_ context.Context, msg pulsar.Message) error {
		x.mu.Lock()
		defer x.mu.Unlock()
		if time.Now().Before(x.until) && rng.IntN(2) == 0 {
			return errTest
		}
		handled = handled || string(msg.Payload()) == "last"
		return nil
	}, options...)
	require.NoError(t, err)
	for i := range 30 {
		time.AfterFunc(time.Duration(i)*20*time.Second, func() { r.publishKeyed(fmt.Sprintf("%c%d", 'a'+i%3, i)) })
	}
	time.AfterFunc(2*time.Hour, func() { r.publish("last") })
	end := 3 * time.Hour
	if rng.IntN(3) == 0 {
		end = time.Duration(rng.IntN(600)) * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), end)
	defer cancel()
	began := time.Now()
	_ = w.Run(ctx) // it may say that messages are left, whose callbacks did not return
	assert.Less(t, time.Since(began), end+16*time.Second)
	x.mu.Lock()
	assert.True(t, handled || end < 2*time.Hour, "seed %d: nothing is handled any more: %+v", seed, w.Stats())
	x.of = "" // Close calls interceptors too
	x.mu.Unlock()
	r.consumer.Close()
}

// The nack policy exits where the slot whose turn it is to try looks whether the Consumer is closed: another one tries.
func TestGoexitBeforeATry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, quiet := &rig{T: t, log: &logtest.Buffer{}}, slog.New(slog.DiscardHandler)
		var exit, works atomic.Bool
		var done atomic.Int32
		setup(r, withDeadLetters(50), redelivery.WithLogger(quiet), redelivery.WithAckTimeout(20*time.Second),
			redelivery.WithNackRedeliveryBackoff(backoff.Func(func(uint32) time.Duration {
				if exit.CompareAndSwap(true, false) {
					runtime.Goexit()
				}
				return time.Second
			})))
		w, err := worker.New(r.consumer, func(context.Context, pulsar.Message) error {
			if !works.Load() {
				return errTest
			}
			done.Add(1)
			return nil
		}, worker.WithLogger(quiet), worker.WithConcurrency(2), worker.WithPauseOnFailure(2, .5, backoff.Fixed(10*time.Second)))
		require.NoError(t, err)
		r.publishKeyed("a1", "b1", "c1")
		// Between two tries: during one the policy may exit where a message that failed is settled, which is left to the broker then.
		time.AfterFunc(65*time.Second, func() {
			works.Store(true)
			exit.Store(true)
		})
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		_ = w.Run(ctx) // it may say that a message is left
		r.consumer.Close()
		require.False(t, exit.Load())
		require.GreaterOrEqual(t, done.Load(), int32(3))
	})
}
