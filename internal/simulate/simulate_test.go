package simulate

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/race"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
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
		s.Window, s.Ratio, s.Pause = 20, 0.9, backoff.Fixed(longestPause)
	},
	"pause, three in four fail": func(s *Setup) { // successes end rows of failures, so there is hardly a pause
		s.Partial, s.Window, s.Ratio, s.Pause = 0.75, 20, 0.7, backoff.Fixed(250*time.Millisecond)
	},
	"retry topic":             func(s *Setup) { s.Nack, s.RetryFrom = backoff.Fixed(2500*time.Millisecond), time.Second },
	"too many unacknowledged": func(s *Setup) { s.Nack, s.MaxDeliveries, s.MaxTogether = backoff.Fixed(5*time.Second), 0, 200 },
}

// A simulation predicts, within a tenth or by chance, the figures of Consumers and Workers at the broker in this
// process: calls, dead letters, unsettled messages, and the time to recover. On a busy machine each case has three
// tries. All cases run at once, since they mostly wait.
func TestAgainstARealRun(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a quarter of a minute")
	}
	if race.Enabled {
		t.Skip("the race detector makes Workers slower than the prediction")
	}
	isBusy := watchClock(t)
	var all sync.WaitGroup
	for name, change := range cases {
		s := small()
		s.Outage = 10 * time.Second
		change(&s)
		var clients []pulsar.Client
		for range 3 {
			clients = append(clients, pulsartest.NewServer(t, pulsartest.WithMaxUnacked(s.MaxUnacked, s.MaxTogether)).Client(t))
		}
		all.Go(func() {
			want, err := Run(s)
			if !assert.NoError(t, err, name) {
				return
			}
			for _, client := range clients {
				got, err := play(t.Context(), client, s)
				if !assert.NoError(t, err, name) {
					return
				}
				t.Logf("%s: calls %d, in fact %d; dead letters %d, %d; unsettled %d, %d; recovered after %v, %v", name, want.Calls, got.Calls,
					want.Dead, got.Dead, want.Unsettled, got.Unsettled, want.After, got.After)
				if near(want, got) {
					return
				}
			}
			if isBusy() {
				t.Logf("%s: not compared, since this machine is too busy to keep the time", name)
				return
			}
			assert.Fail(t, "more than a tenth apart", name)
		})
	}
	all.Wait()
}

// watchClock reports whether one in twenty sleeps, until the test ends, was more than half as long again as it should be.
func watchClock(t *testing.T) (isBusy func() bool) {
	const nap = 20 * time.Millisecond // as long as a handler takes
	var naps, late atomic.Int64
	go func() {
		for t.Context().Err() == nil {
			began := time.Now()
			time.Sleep(nap)
			naps.Add(1)
			if time.Since(began) > nap*3/2 {
				late.Add(1)
			}
		}
	}()
	return func() bool { return 20*late.Load() > naps.Load() }
}

// longestPause is how much later a recovery may begin: the outage may end at any time within a pause.
const longestPause = time.Second

func near(want, got Result) bool {
	within := func(a, b, least float64) bool { return math.Abs(a-b) <= max(0.1*max(a, b), least) }
	counts := func(a, b int, least float64) bool {
		return within(float64(a), float64(b), max(least, 2*math.Sqrt(float64(max(a, b)))))
	}
	return counts(want.Calls, got.Calls, 0) && counts(want.Dead, got.Dead, 5) && counts(want.Unsettled, got.Unsettled, 20) &&
		within(want.After.Seconds(), got.After.Seconds(), longestPause.Seconds())
}

// play is Run in real time.
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
			producer.SendAsync(ctx, &pulsar.ProducerMessage{Payload: []byte("order")}, nil)
		}
		r.Unsettled = max(r.Unsettled, int(published.Load()-acked.Load()-dead.Load()))
		if now >= end && float64(published.Load()-acked.Load()-dead.Load()) <= s.Rate {
			r.After = now - end
			break
		}
		if now > end+s.Longest {
			return r, errors.New("it does not recover")
		}
	}
	r.Calls, r.Dead = int(calls.Load()), int(dead.Load())
	cancel()
	for range s.Instances {
		err = errors.Join(err, <-ended)
	}
	return r, err
}
