package simulate

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/virtual"
	"github.com/pulsar-redelivery/redelivery/worker"
)

func small() Setup {
	return Setup{Rate: 50, Instances: 3, Concurrency: 4, Handler: 20 * time.Millisecond, Queue: 1000, Before: time.Second, Outage: 20 * time.Second,
		Partial: 1, Nack: backoff.Exponential{Min: 500 * time.Millisecond, Max: 4 * time.Second}, MaxDeliveries: 5, Tick: time.Second,
		MaxUnacked: 50_000, Longest: time.Minute}
}

var cases = map[string]func(*Setup){
	"nacks":             func(*Setup) {},
	"a part fails":      func(s *Setup) { s.Partial = 0.3 },
	"one delay for all": func(s *Setup) { s.Nack, s.MaxDeliveries = backoff.Fixed(1500*time.Millisecond), 4 },
	"pause": func(s *Setup) {
		s.Window, s.Ratio, s.Pause = 20, 0.9, backoff.Exponential{Min: 200 * time.Millisecond, Max: 900 * time.Millisecond}
	},
	"pause of a second": func(s *Setup) { // all messages are given back to the broker
		s.Window, s.Ratio, s.Pause = 20, 0.9, backoff.Fixed(time.Second)
	},
	"pause, three in four fail": func(s *Setup) { // successes end rows of failures, so there is hardly a pause
		s.Partial, s.Window, s.Ratio, s.Pause = 0.75, 20, 0.7, backoff.Fixed(250*time.Millisecond)
	},
	"retry topic":             func(s *Setup) { s.Nack, s.RetryFrom = backoff.Fixed(2500*time.Millisecond), time.Second },
	"too many unacknowledged": func(s *Setup) { s.Nack, s.MaxDeliveries, s.MaxTogether = backoff.Fixed(5*time.Second), 0, 200 },
}

// The figures are calls, dead letters, unsettled messages, and the time to recover. They may differ by a tenth.
func TestSimulationPredictsTheFiguresOfWorkersInVirtualTime(t *testing.T) {
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			s := small()
			change(&s)
			rounds := 1
			if s.Partial < 1 { // chance decides which calls fail
				rounds = 20
			}
			var want, got []Result
			for i := range rounds {
				w := newWorld(s)
				w.random = rand.New(rand.NewPCG(1, uint64(i)))
				require.NoError(t, w.run())
				want = append(want, w.result())
				synctest.Test(t, func(t *testing.T) {
					r, err := play(t.Context(), &virtual.Broker{MaxUnacked: s.MaxTogether}, s)
					require.NoError(t, err)
					got = append(got, r)
				})
			}
			assertNear(t, mean(want), mean(got))
		})
	}
}

// mean returns the means of the figures that assertNear compares.
func mean(of []Result) (m Result) {
	for _, r := range of {
		m.Calls += r.Calls
		m.Dead += r.Dead
		m.Unsettled += r.Unsettled
		m.After += r.After
	}
	n := len(of)
	return Result{Calls: m.Calls / n, Dead: m.Dead / n, Unsettled: m.Unsettled / n, After: m.After / time.Duration(n)}
}

func assertNear(t *testing.T, want, got Result) {
	const tenth = 0.1
	assert.InEpsilon(t, want.Calls, got.Calls, tenth, "calls")
	assert.InDelta(t, want.Dead, got.Dead, max(2, tenth*float64(want.Dead)), "dead letters")
	assert.InDelta(t, want.Unsettled, got.Unsettled, max(2, tenth*float64(want.Unsettled)), "unsettled messages")
	assert.InDelta(t, want.After, got.After, max(float64(small().Handler), tenth*float64(want.After)), "the time to recover")
	t.Logf("calls %d, by Workers %d; dead letters %d, %d; unsettled %d, %d; recovered after %v, %v", want.Calls, got.Calls,
		want.Dead, got.Dead, want.Unsettled, got.Unsettled, want.After, got.After)
}

// play does what Run does, with Consumers and Workers.
func play(ctx context.Context, client pulsar.Client, s Setup) (r Result, err error) {
	quiet := slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var began atomic.Int64
	var calls, acked, dead, published atomic.Int64
	ended := make(chan error, s.Instances)
	for range s.Instances {
		options := []redelivery.Option{redelivery.WithNackRedeliveryBackoff(s.Nack), redelivery.WithLogger(quiet),
			redelivery.WithObserver(redelivery.Observer{Settled: func(e redelivery.Settled) {
				switch e.Outcome {
				case redelivery.Acked:
					acked.Add(1)
				case redelivery.DeadLettered:
					dead.Add(1)
				default:
				}
			}})}
		policy := redelivery.DeadLetterPolicy{MaxDeliveries: s.MaxDeliveries, InitialSubscriptionName: "inspect"}
		if s.RetryFrom > 0 {
			options = append(options, redelivery.WithNackRetryTopic(s.RetryFrom), redelivery.WithReconsumeBackoff(backoff.Fixed(time.Second)))
		}
		if s.MaxDeliveries > 0 {
			options = append(options, redelivery.WithDeadLetterPolicy(policy))
		}
		consumer, err := redelivery.Subscribe(client, pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing", Type: pulsar.Shared,
			ReceiverQueueSize: s.Queue}, options...)
		if err != nil {
			return r, err
		}
		defer consumer.Close()
		workerOptions := []worker.Option{worker.WithConcurrency(s.Concurrency), worker.WithDrainTimeout(time.Second), worker.WithLogger(quiet)}
		if s.Window > 0 {
			workerOptions = append(workerOptions, worker.WithPauseOnFailure(s.Window, s.Ratio, s.Pause))
		}
		w, err := worker.New(consumer, func(context.Context, pulsar.Message) error {
			now := time.Duration(time.Now().UnixNano() - began.Load())
			down := now >= s.Before && now < s.Before+s.Outage
			if down {
				calls.Add(1)
			}
			time.Sleep(s.Handler)
			if down && (s.Partial >= 1 || rand.Float64() < s.Partial) {
				return errors.New("down")
			}
			return nil
		}, workerOptions...)
		if err != nil {
			return r, err
		}
		go func() { ended <- w.Run(ctx) }()
	}
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: "orders", DisableBatching: true})
	if err != nil {
		return r, err
	}
	defer producer.Close()
	began.Store(time.Now().UnixNano())
	end := s.Before + s.Outage
	for ; ; time.Sleep(2 * time.Millisecond) {
		now := time.Duration(time.Now().UnixNano() - began.Load())
		for float64(published.Load()) < now.Seconds()*s.Rate {
			published.Add(1)
			producer.SendAsync(ctx, &pulsar.ProducerMessage{Payload: []byte("order")},
				func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
		}
		r.Unsettled = max(r.Unsettled, int(published.Load()-acked.Load()-dead.Load()))
		if now >= end && float64(published.Load()-acked.Load()-dead.Load()) <= s.Rate {
			r.After = now - end
			break
		}
		if now > end+s.Longest {
			return r, errors.New("the consumers do not recover")
		}
	}
	r.Calls, r.Dead = int(calls.Load()), int(dead.Load())
	cancel()
	for range s.Instances {
		err = errors.Join(err, <-ended)
	}
	return r, err
}
