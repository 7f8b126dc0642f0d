package worker_test

import (
	"context"
	"fmt"
	"strings"
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

// Between good messages come some that always fail. In the cases with down, all messages fail for that time, too. The
// test compares plain nacks with WithPauseOnFailure.
func TestPauseOnFailureHandlesGoodMessagesAmongBadOnesSoon(t *testing.T) {
	pause := worker.WithPauseOnFailure(20, 0.9, backoff.Exponential{Min: time.Second, Max: 10 * time.Second})
	for _, c := range []struct {
		opts    pulsar.ConsumerOptions
		down    time.Duration // how long all messages fail after the bad ones have come
		bad     int
		longest time.Duration // how long a good message may wait at most, not counting down
		dead    int           // dead letters of good messages
	}{
		{withDeadLetters(5), 0, 1, time.Second, 0},
		{withDeadLetters(5), 0, 30, 16 * time.Second, 0},
		{withDeadLetters(5), 0, 200, time.Minute, 0},
		{withDeadLetters(5), 2 * time.Minute, 30, 30 * time.Second, 0},
		{exclusive(5), 0, 30, 16 * time.Second, 0},
		{exclusive(5), 0, 200, time.Minute, 0},
		{exclusive(5), 2 * time.Minute, 30, 30 * time.Second, 0},
	} {
		plain := runPoison(t, c.opts, c.bad, c.down)
		paused := runPoison(t, c.opts, c.bad, c.down, pause)
		t.Logf("%v, %d bad, down for %v: plain nacks: %v; with a pause: %v", c.opts.Type, c.bad, c.down, plain, paused)
		assert.LessOrEqual(t, paused.longest, c.longest)
		for _, r := range []poisonResult{plain, paused} {
			assert.Equal(t, c.bad, r.dead)
		}
		assert.Len(t, paused.at, 3000)
		if c.opts.Type == pulsar.Shared && c.down == 0 && c.bad == 30 {
			draw(t, "outage-poison.svg", "30 messages that always fail", time.Minute, time.Minute,
				panel{"Good messages, plain nacks: " + plain.String(), orange, plain.at},
				panel{"Good messages, WithPauseOnFailure(20, 0.9, …): " + paused.String(), blue, paused.at})
		}
	}
}

type poisonResult struct {
	at         []time.Duration // when good messages were handled
	longest    time.Duration   // longest wait of a good message, not counting the time in which all failed
	dead, lost int             // dead letters of bad messages, and of good ones
	calls      int             // calls of the handler while all failed
}

func (r poisonResult) String() string {
	s := fmt.Sprintf("one waited for %.1f s, %d dead letters", r.longest.Seconds(), r.dead+r.lost)
	if r.calls > 0 {
		s += fmt.Sprintf(", %d calls while all failed", r.calls)
	}
	return s
}

func runPoison(t *testing.T, opts pulsar.ConsumerOptions, bad int, down time.Duration, options ...worker.Option) (r poisonResult) {
	virtually(t, opts, func(t *rig) {
		began := time.Now()
		var mu sync.Mutex
		_, stop := t.start(func(ctx context.Context, msg pulsar.Message) error {
			at := time.Since(began)
			time.Sleep(5 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if at >= time.Minute && at < time.Minute+down {
				r.calls++
				return errTest
			}
			if err := failBad(ctx, msg); err != nil {
				return err
			}
			r.at = append(r.at, at)
			up := time.Since(msg.PublishTime())
			if from := msg.PublishTime().Sub(began); from < time.Minute+down {
				up = at - max(from, time.Minute+down)
			}
			r.longest = max(r.longest, up)
			return nil
		}, append(options, worker.WithConcurrency(8), worker.WithLogger(quiet))...)
		for n := range 3000 {
			if n == 600 {
				for range bad {
					t.publish("bad")
				}
			}
			t.publish("good")
			time.Sleep(100 * time.Millisecond)
		}
		t.sleep(3 * time.Hour)
		require.NoError(t, stop())
		require.Empty(t, t.broker.Unacked())
		for _, letter := range t.letters() {
			if strings.HasPrefix(letter, "bad") {
				r.dead++
			} else {
				r.lost++
			}
		}
	}, redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: time.Second, Max: time.Minute}), redelivery.WithAckTimeout(30*time.Second),
		redelivery.WithLogger(quiet))
	return r
}
