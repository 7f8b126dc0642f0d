package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// Some messages fail. With WithPauseOnFailure nearly all of the others are handled as soon as with plain nacks,
// whatever the ratio. In small windows, and if nearly all messages fail, an outage may begin by chance.
func TestPartialOutageDelaysFewHealthyMessages(t *testing.T) {
	t.Parallel()
	pause := backoff.Exponential{Min: time.Second, Max: 10 * time.Second}
	withPlainNacks := map[int]partialResult{50: runPartial(t, 50), 80: runPartial(t, 80)}
	for _, o := range []struct {
		failing, window int
		ratio, share    float64 // of the messages in time with plain nacks, share must be in time with a pause
	}{
		{50, 20, 0.5, 0.95}, {50, 20, 0.9, 0.95}, {50, 1, 1, 0}, {80, 20, 0.9, 0},
	} {
		plain := withPlainNacks[o.failing]
		paused := runPartial(t, o.failing, worker.WithPauseOnFailure(o.window, o.ratio, pause))
		t.Logf("%d%% fail: %v with plain nacks, %v with WithPauseOnFailure(%d, %v, …)", o.failing, plain, paused, o.window, o.ratio)
		assert.Greater(t, float64(paused.inTime), float64(plain.inTime)*o.share, "%d%% fail, window %d, ratio %v", o.failing, o.window, o.ratio)
	}
}

type partialResult struct {
	healthy int // messages that do not fail
	inTime  int // healthy messages handled within five seconds
}

func (r partialResult) String() string { return fmt.Sprintf("%d of %d in time", r.inTime, r.healthy) }

// runPartial publishes messages for two minutes. A percentage of them fails until these minutes are over.
func runPartial(t *testing.T, failing int, options ...worker.Option) (r partialResult) {
	virtually(t, withDeadLetters(50), func(t *rig) {
		began := time.Now()
		var mu sync.Mutex
		seen := map[string]bool{}
		_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			time.Sleep(5 * time.Millisecond)
			if msg.Key() == "bad" && time.Since(began) < 2*time.Minute {
				return errTest
			}
			mu.Lock()
			defer mu.Unlock()
			if msg.Key() == "good" && !seen[string(msg.Payload())] && time.Since(msg.PublishTime()) <= 5*time.Second {
				r.inTime++
			}
			seen[string(msg.Payload())] = true
			return nil
		}, append(options, worker.WithConcurrency(8), worker.WithLogger(quiet))...)
		random := rand.New(rand.NewPCG(1, 2))
		for n := range 4000 {
			key := "good"
			if random.IntN(100) < failing {
				key = "bad"
			} else {
				r.healthy++
			}
			t.broker.Publish("orders", &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(n)), Key: key})
			time.Sleep(30 * time.Millisecond)
		}
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Empty(t, t.broker.Unacked())
		require.Len(t, seen, 4000)
	}, redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: time.Second, Max: time.Minute}),
		redelivery.WithAckTimeout(30*time.Second), redelivery.WithLogger(quiet))
	return r
}

// The message that succeeds was in its handler when the outage began.
func TestSuccessOfAnEarlierCallEndsAnOutage(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		t.publish("good")
		w, stop := t.start(func(ctx context.Context, msg pulsar.Message) error {
			if string(msg.Payload()) == "good" {
				time.Sleep(time.Second)
			}
			return failBad(ctx, msg)
		}, worker.WithConcurrency(2), worker.WithPauseOnFailure(1, 1, backoff.Fixed(time.Hour)))
		t.sleep(100 * time.Millisecond)
		t.publish("bad")
		t.sleep(100 * time.Millisecond)
		require.True(t, w.Stats().Outage)
		t.publish("good")
		t.sleep(2 * time.Second)
		require.EqualValues(t, 2, w.Stats().Succeeded)
		require.NoError(t, stop())
	})
}

// The next outage needs more failures, since the first one may have been chance.
func TestFailuresInARowBeginAnOutage(t *testing.T) {
	for name, c := range map[string]struct {
		window int
		ratio  float64
		script string // a sign for each message: + succeeds, - fails; in an outage all succeed
		begins []int  // the messages that begin an outage
	}{
		"all fail":                       {4, 0.5, "----", []int{3}},
		"the last ones in a row":         {4, 0.5, "+++--", []int{4}},
		"never two in a row":             {4, 0.5, "-+-+-+-+-+-+-+-+", nil},
		"the whole window":               {4, 1, "+---+---+----", []int{12}},
		"the next takes four times":      {2, 1, "--" + "-------+" + "--------", []int{1, 17}},
		"until eight messages succeeded": {2, 1, "--" + "++++++++" + "--", []int{1, 11}},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				var mu sync.Mutex
				var began []int
				w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
					mu.Lock()
					defer mu.Unlock()
					if len(began) > 0 && string(msg.Payload()) == fmt.Sprint(began[len(began)-1]) || msg.RedeliveryCount() > 0 {
						return nil // a message that was in an outage, or a redelivery
					}
					if n, _ := strconv.Atoi(string(msg.Payload())); c.script[n] == '-' {
						return errTest
					}
					return nil
				}, worker.WithConcurrency(1), worker.WithPauseOnFailure(c.window, c.ratio, backoff.Fixed(time.Second)))
				for n := range c.script {
					t.publish(fmt.Sprint(n))
					t.sleep(0)
					if w.Stats().Outage {
						mu.Lock()
						began = append(began, n)
						mu.Unlock()
						t.sleep(2 * time.Second)
					}
				}
				require.NoError(t, stop())
				require.Equal(t, c.begins, began)
			})
		})
	}
}

// A message that waits for its try is handled at once when a success ends the outage. The next outage begins with a
// pause of its own.
func TestEndOfAnOutageEndsItsPause(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		calls := newCalls()
		_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			switch n := calls.note(msg); {
			case string(msg.Payload()) == "slow":
				time.Sleep(10 * time.Second)
			case n <= 2:
				return errTest
			}
			return nil
		}, worker.WithConcurrency(2), worker.WithPauseOnFailure(1, 1, backoff.Fixed(time.Minute)))
		t.publish("slow")
		t.sleep(0)
		t.publish("bad")
		t.sleep(time.Hour)
		require.Equal(t, []time.Duration{0, 0, 10 * time.Second}, calls.times())
		require.NoError(t, stop())
	})
}
