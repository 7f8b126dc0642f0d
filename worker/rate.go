package worker

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// WithRateLimit (default: none) limits how many messages handlers get in a second. Each call of a handler takes one
// token of limiter for each of its messages, retries included. Several Workers may share a limiter, and its limit may
// be changed at any time. One new message or batch at a time waits for the limiter, and its ack timeout is renewed; the
// others stay with the Consumer. A message that waits when a drain begins is handled if the drain finishes its batch
// (WithFinishBatches), and otherwise left to the broker. A message that waits when a Pause begins is handled, like all
// messages taken before the Pause. The limiter's burst must be at least 1.
func WithRateLimit(limiter *rate.Limiter) Option {
	return func(s *settings) error {
		switch {
		case limiter == nil:
			return invalid("WithRateLimit", "nil", "a *rate.Limiter")
		case limiter.Burst() < 1 && limiter.Limit() != rate.Inf:
			return invalid("the burst of WithRateLimit", limiter.Burst(), "1 or more")
		case !(limiter.Limit() >= 0): // or NaN
			return invalid("the limit of WithRateLimit", limiter.Limit(), "0 or more")
		}
		s.limiter = limiter
		return nil
	}
}

// waitForRate waits until the limiter allows a handler to get the slot's share of messages. If the Run ends before
// that, waitForRate leaves all messages of the slot to the broker, and returns an error.
func (s *slot) waitForRate() error {
	n := s.share()
	if s.limiter == nil || s.limiter.AllowN(time.Now(), n) {
		return nil
	}
	missing, err := s.pay(s.taking, n)
	if err != nil && s.mayFinish(s.tasks[:n]) {
		_, err = s.pay(s.working, missing)
	}
	if err != nil {
		s.leaveOwn("the Run ends while the message waits for the rate limit")
	}
	return err
}

// pay takes n tokens of the limiter in portions. A portion is at most what the limiter grants in a second: with larger
// portions, Workers that take fewer tokens at a time would always be first. If pay fails, it returns how many tokens
// are missing.
func (s *slot) pay(ctx context.Context, n int) (missing int, err error) {
	for n > 0 {
		some := min(n, max(1, s.limiter.Burst()), max(1, int(min(float64(n), float64(s.limiter.Limit())))))
		if err := s.paySome(ctx, some); err != nil {
			return n, err
		}
		n -= some
	}
	return 0, nil
}

// paySome takes tokens. It reserves them, so that the slot keeps its place among the Workers that wait. Within a second
// after a change of the limit, it makes a new reservation, and keeps the one with the shorter wait.
func (s *slot) paySome(ctx context.Context, some int) error {
	limit, burst := s.limiter.Limit(), s.limiter.Burst()
	place := s.limiter.ReserveN(time.Now(), some)
	for place.Delay() > 0 {
		if err := sleep(ctx, min(place.Delay(), time.Second)); err != nil {
			place.Cancel()
			return err
		}
		if l, b := s.limiter.Limit(), s.limiter.Burst(); l != limit || b != burst {
			limit, burst = l, b
			other := s.limiter.ReserveN(time.Now(), some)
			if other.Delay() < place.Delay() {
				place, other = other, place
			}
			other.Cancel()
		}
	}
	return nil
}
