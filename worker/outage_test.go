package worker_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

func TestInvalidPauseOnFailureIsRefused(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		pause := backoff.Fixed(time.Second)
		for want, option := range map[string]worker.Option{
			"window is 0, want 1 or more":                                                          worker.WithPauseOnFailure(0, 0.5, pause),
			"ratio is 0, want more than 0, and at most 1":                                          worker.WithPauseOnFailure(1, 0, pause),
			"ratio is 1.1, want more than 0, and at most 1":                                        worker.WithPauseOnFailure(1, 1.1, pause),
			"worker: WithPauseOnFailure's pause: backoff: policy is nil, want a RedeliveryBackoff": worker.WithPauseOnFailure(1, 1, nil),
			"Fixed delay is -1ns":                                                                  worker.WithPauseOnFailure(1, 1, backoff.Fixed(-1)),
			"Func is nil":                                                                          worker.WithPauseOnFailure(1, 1, backoff.Func(nil)),
			"Exponential.Min is -1ns":                                                              worker.WithPauseOnFailure(1, 1, backoff.Exponential{Min: -1}),
		} {
			_, err := worker.New(t.consumer, succeed, option)
			require.ErrorIs(t, err, redelivery.ErrInvalidOption)
			require.ErrorContains(t, err, want)
			require.LessOrEqual(t, strings.Count(err.Error(), "want"), 1, err)
		}
	})
}

// exclusive returns options of an Exclusive consumer, which cannot give messages back.
func exclusive(maxDeliveries uint32) pulsar.ConsumerOptions {
	opts := withDeadLetters(maxDeliveries)
	opts.Type = pulsar.Exclusive
	return opts
}

// Messages that have not failed yet are tried first. The messages tried in the outage are not nacked.
func TestOutageTriesOneMessageAfterEachPause(t *testing.T) {
	virtually(t, exclusive(2), func(t *rig) {
		for n := range 20 {
			t.publish(fmt.Sprint(n))
		}
		began := time.Now()
		calls := newCalls()
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			calls.note(msg)
			if up := time.Since(began) >= 10*time.Second; !up {
				return errTest
			}
			return nil
		}, worker.WithPauseOnFailure(4, 0.75, backoff.Exponential{Min: time.Second, Max: 4 * time.Second}), worker.WithConcurrency(1))
		t.sleep(5 * time.Second)
		require.True(t, w.Stats().Outage)
		require.Equal(t, 6, w.Stats().InFlight) // 3 to 8
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []string{"4", "8", "19", "18"}, calls.what[4:8])
		for n, at := range []time.Duration{0, 0, 0, 0, time.Second, 3 * time.Second, 7 * time.Second, 11 * time.Second} {
			require.InDelta(t, at.Seconds(), calls.times()[n].Seconds(), 0.1)
		}
		for _, at := range calls.times()[8 : 8+15] {
			require.InDelta(t, 11, at.Seconds(), 0.1)
		}
		require.Empty(t, t.letters())
		require.Equal(t, worker.Stats{Succeeded: 20, Failed: 3}, w.Stats())
		require.Contains(t, t.log.String(), "most messages fail")
		require.Contains(t, t.log.String(), "the outage is over\" consumer=virtual subscription=billing after=11.02s tries=4")
	}, redelivery.WithAckTimeout(3*time.Second))
}

func TestSlowObserverSeesAnOutageBeginBeforeItEnds(t *testing.T) {
	virtually(t, exclusive(9), func(t *rig) {
		for n := range 20 {
			t.publish(fmt.Sprint(n))
		}
		began := time.Now()
		var mu sync.Mutex
		var told []bool
		w, stop := t.start(func(context.Context, pulsar.Message) error {
			if time.Since(began) < 3*time.Second {
				return errTest
			}
			return nil
		}, worker.WithPauseOnFailure(4, 1, backoff.Fixed(time.Second)), worker.WithConcurrency(2),
			worker.WithObserver(worker.Observer{Paused: func(p worker.Paused) {
				if p.Paused {
					time.Sleep(10 * time.Second)
				}
			}}),
			worker.WithObserver(worker.Observer{Paused: func(p worker.Paused) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, p.Paused)
			}}))
		t.sleep(time.Minute)
		require.False(t, w.Stats().Outage)
		require.NoError(t, stop())
		require.Equal(t, []bool{true, false}, told)
	})
}

func TestOutcomesThatBeginAndEndAnOutage(t *testing.T) {
	const later = 30 * time.Second
	for name, c := range map[string]struct {
		errs        []error // the results of the first calls; later calls succeed
		concurrency int
		takes       time.Duration
		messages    int
		calls       []time.Duration
		stats       worker.Stats
	}{
		"a ratio that is not reached": {
			[]error{errTest, nil, nil, errTest, nil, nil}, 1, 0, 6,
			[]time.Duration{0, 0, 0, 0, 0, 0, time.Minute, time.Minute}, worker.Stats{Succeeded: 6, Failed: 2},
		},
		"permanent errors neither count nor end it": {
			[]error{worker.Permanent(errTest), errTest, worker.Permanent(errTest), errTest, worker.Permanent(errTest)}, 1, 0, 6,
			[]time.Duration{0, 0, 0, 0, time.Second, 2 * time.Second, 2 * time.Second, time.Minute},
			worker.Stats{Succeeded: 3, Failed: 1, Permanent: 3},
		},
		"a longer retry after is an attempt": {
			[]error{errTest, worker.RetryAfter(later, errTest), worker.RetryAfter(later, errTest), nil}, 1, 0, 2,
			[]time.Duration{0, 0, later, 2 * later, 2 * later}, worker.Stats{Succeeded: 2, Failed: 3},
		},
		"messages in handlers are kept, too": {
			[]error{errTest, errTest, errTest, errTest}, 4, 100 * time.Millisecond, 4,
			[]time.Duration{0, 0, 0, 0, 1100 * time.Millisecond, 1200 * time.Millisecond, 1200 * time.Millisecond, time.Minute + 100*time.Millisecond},
			worker.Stats{Succeeded: 4, Failed: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, withDeadLetters(5), func(t *rig) {
				calls := newCalls()
				w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
					n := calls.note(msg)
					time.Sleep(c.takes)
					if n > len(c.errs) {
						return nil
					}
					return c.errs[n-1]
				}, worker.WithPauseOnFailure(2, 1, backoff.Fixed(time.Second)), worker.WithConcurrency(c.concurrency))
				for n := range c.messages {
					t.publish(fmt.Sprint(n))
				}
				t.sleep(time.Hour)
				require.NoError(t, stop())
				require.Len(t, calls.times(), len(c.calls))
				for n, at := range calls.times() {
					require.InDelta(t, c.calls[n].Seconds(), at.Seconds(), 0.05)
				}
				require.Equal(t, c.stats, w.Stats())
			}, redelivery.WithAckTimeout(3*time.Second))
		})
	}
}

func TestDrainLeavesMessagesOfAnOutageToTheBroker(t *testing.T) {
	virtually(t, exclusive(2), func(t *rig) {
		t.publish("a")
		t.publish("b")
		t.publish("c")
		w, stop := t.start(func(context.Context, pulsar.Message) error {
			time.Sleep(time.Millisecond)
			return errTest
		},
			worker.WithPauseOnFailure(1, 1, backoff.Fixed(time.Minute)), worker.WithConcurrency(2))
		t.sleep(time.Second)
		require.Equal(t, worker.Stats{Outage: true, InFlight: 2}, w.Stats())
		began := time.Now()
		require.NoError(t, stop())
		require.Zero(t, time.Since(began))
		require.EqualValues(t, 2, w.Stats().Left)
		require.Len(t, t.broker.Unacked(), 3)
	}, redelivery.WithAckTimeout(3*time.Second))
}

// After the outage the other messages of the batch are handled together.
func TestOutageTriesMessagesOfABatchOneByOne(t *testing.T) {
	virtually(t, exclusive(5), func(t *rig) {
		for _, payload := range []string{"a", "b", "c", "d"} {
			t.publish(payload)
		}
		var got []string
		began := time.Now()
		_, stop := t.startBatch(worker.Batch{MaxMessages: 4}, func(_ context.Context, msgs []pulsar.Message) error {
			got = append(got, fmt.Sprint(time.Since(began).Round(time.Second), " ", text(msgs)))
			switch len(got) {
			case 1:
				return worker.BatchError{1: errTest, 2: errTest, 3: errTest}
			case 2:
				return errTest
			}
			return nil
		}, worker.WithPauseOnFailure(2, 0.5, backoff.Fixed(time.Second)), worker.WithConcurrency(1))
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []string{"0s a b c d", "1s b", "2s c", "2s d b"}, got)
	})
}

func TestPausedWorkerTriesNothingInAnOutage(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		calls := newCalls()
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			if calls.note(msg) == 1 {
				return errTest
			}
			return nil
		}, worker.WithPauseOnFailure(1, 1, backoff.Fixed(time.Second)))
		t.publish("a")
		t.sleep(0)
		w.Pause()
		t.sleep(time.Hour)
		w.Resume()
		t.sleep(time.Second)
		require.NoError(t, stop())
		require.InDelta(t, time.Hour.Seconds(), calls.times()[1].Seconds(), 0.1)
		require.Len(t, calls.times(), 2)
	}, redelivery.WithAckTimeout(3*time.Second))
}

// All messages of the outage have become dead letters. The next message is tried at once.
func TestOutageWithNothingLeftToTryLastsUntilTheNextMessage(t *testing.T) {
	virtually(t, withDeadLetters(2), func(t *rig) {
		calls, failing := newCalls(), true
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			calls.note(msg)
			if failing {
				return errTest
			}
			return nil
		}, worker.WithPauseOnFailure(1, 1, backoff.Fixed(time.Second)), worker.WithConcurrency(2))
		t.publish("a", "b")
		t.sleep(time.Hour)
		require.Len(t, t.letters(), 2)
		require.Empty(t, t.broker.Unacked())
		require.True(t, w.Stats().Outage)
		failing = false
		t.publish("c")
		t.sleep(10 * time.Millisecond)
		require.False(t, w.Stats().Outage)
		require.EqualValues(t, 1, w.Stats().Succeeded)
		require.NoError(t, stop())
	})
}

// 10,000 messages come in five minutes, and the database is down for two of these minutes. Plain nacks, to compare, do
// make dead letters.
func TestPauseOnFailureMakesNoDeadLettersInTwoMinutesDown(t *testing.T) {
	t.Parallel()
	const pause = 10 * time.Second
	plain := runDowntime(t)
	paused := runDowntime(t, worker.WithPauseOnFailure(20, 0.9, backoff.Exponential{Min: time.Second, Max: pause}))
	for name, r := range map[string]downtimeResult{"plain nacks": plain, "with a pause": paused} {
		t.Logf("%s: %d calls while it was down, %d dead letters, the next success %v after it was up again, all done %v after",
			name, r.down, r.dead, r.back, r.done)
	}
	require.Zero(t, paused.dead)
	require.Positive(t, plain.dead)
	require.Less(t, paused.down, plain.down/10)
	require.LessOrEqual(t, paused.back, pause+5*time.Millisecond)
	// The backlog is handled at full rate, while new messages still come.
	require.LessOrEqual(t, paused.done-paused.back, 10*time.Second)
	draw(t, "outage.svg", "the database is down", downFrom, downTo,
		panel{fmt.Sprintf("Plain nacks: %d calls while it is down, %d dead letters", plain.down, plain.dead), orange, plain.calls},
		panel{fmt.Sprintf("WithPauseOnFailure(20, 0.9, …): %d calls while it is down, %d dead letters, back after %.1f s", paused.down, paused.dead,
			paused.back.Seconds()), blue, paused.calls})
}

const (
	downFrom, downTo = time.Minute, 3 * time.Minute
	allPublished     = 5 * time.Minute
)

type downtimeResult struct {
	calls      []time.Duration // of the handler
	down, dead int             // calls while the database was down, dead letters
	back       time.Duration   // from the end of the downtime until the next call
	done       time.Duration   // from the end of the downtime until there is no backlog any more
}

func runDowntime(t *testing.T, options ...worker.Option) (r downtimeResult) {
	const messages = 10_000
	virtually(t, withDeadLetters(5), func(t *rig) {
		began := time.Now()
		var mu sync.Mutex
		published, settled := 0, 0
		w, stop := t.start(func(context.Context, pulsar.Message) error {
			at := time.Since(began)
			time.Sleep(5 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			r.calls = append(r.calls, at)
			if at >= downFrom && at < downTo {
				r.down++
				return errTest
			}
			settled++
			if at >= downTo {
				if r.back == 0 {
					r.back = at - downTo
				}
				if r.done == 0 && published-settled <= 8 {
					r.done = at - downTo
				}
			}
			return nil
		}, append(options, worker.WithConcurrency(8), worker.WithLogger(quiet))...)
		for range messages {
			t.publish("order")
			mu.Lock()
			published++
			mu.Unlock()
			time.Sleep(allPublished / messages)
		}
		t.sleep(time.Hour)
		require.NoError(t, stop())
		r.dead = len(t.letters())
		require.Empty(t, t.broker.Unacked())
		require.EqualValues(t, messages, int(w.Stats().Succeeded)+r.dead)
	}, redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: time.Second, Max: time.Minute}),
		redelivery.WithAckTimeout(30*time.Second), redelivery.WithLogger(quiet))
	return r
}

// A message that an outage keeps comes again by itself if its ack timeout was over before its handler returned. It is
// not in two handlers at the same time.
func TestOutageKeepsAMessageThatComesAgain(t *testing.T) {
	virtually(t, exclusive(9), func(t *rig) {
		var mu sync.Mutex
		calls, atWork, twice := map[string]int{}, map[string]int{}, false
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			name := string(msg.Payload())
			mu.Lock()
			calls[name]++
			first := calls[name] == 1
			atWork[name]++
			twice = twice || atWork[name] > 1
			mu.Unlock()
			defer func() {
				mu.Lock()
				atWork[name]--
				mu.Unlock()
			}()
			if name == "slow" {
				time.Sleep(15 * time.Second)
			}
			if first {
				return errTest
			}
			return nil
		}, worker.WithConcurrency(3), worker.WithPauseOnFailure(1, 1, backoff.Fixed(500*time.Millisecond)))
		t.publish("slow")
		t.publish("fast")
		t.sleep(100 * time.Millisecond)
		w.Pause() // before the ack timeout, until long after the handler returned
		t.sleep(30 * time.Second)
		w.Resume()
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.False(t, twice, "a message is handled twice at a time")
		require.Equal(t, map[string]int{"slow": 2, "fast": 2}, calls)
		require.Empty(t, t.broker.Unacked())
	}, redelivery.WithAckTimeout(5*time.Second))
}

// A message whose RetryAfter is longer than the pause does not stay in the Worker, so WithMaxAge and MaxDeliveries
// apply to it.
func TestRetryAfterBeyondThePauseOfAnOldMessageMakesADeadLetter(t *testing.T) {
	virtually(t, withDeadLetters(9), func(t *rig) {
		calls := newCalls()
		_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			calls.note(msg)
			return worker.RetryAfter(5*time.Second, errTest)
		}, worker.WithPauseOnFailure(1, 1, backoff.Fixed(time.Second)), worker.WithMaxAge(4*time.Second))
		t.publish("tea")
		t.sleep(time.Minute)
		require.NoError(t, stop())
		require.Len(t, calls.times(), 2)
		require.Equal(t, 5*time.Second, calls.times()[1].Round(time.Second))
		require.Equal(t, []string{"tea: older than 4s: no luck"}, t.letters())
	})
}
