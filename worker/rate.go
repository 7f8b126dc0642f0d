package worker

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// WithRateLimit (default: none) limits how many messages a second handlers get. Each call of a handler takes one token of limiter for
// each of its messages, retries included. Several Workers may share a limiter, and its limit may be changed at any time. One message or
// batch at a time waits for the limiter, and its ack timeout is renewed; the others stay with the Consumer. A message that waits when a
// drain begins is left to the broker, unless the drain finishes its batch (WithFinishBatches). One that waits when a Pause begins is handled,
// like all that was taken before. The limiter's burst must be at least 1.
func WithRateLimit(limiter *rate.Limiter) Option {
	return func(s *settings) error {
		switch {
		case limiter == nil:
			return invalid("WithRateLimit", "nil", "a *rate.Limiter")
		case limiter.Burst() < 1 && limiter.Limit() != rate.Inf:
			return invalid("the burst of WithRateLimit", limiter.Burst(), "1 or more")
		case !(limiter.Limit() >= 0): // or not a number
			return invalid("the limit of WithRateLimit", limiter.Limit(), "0 or more")
		}
		s.limiter = limiter
		return nil
	}
}

// takeLimited takes what the rate limit lets a handler have. One slot at a time does, so that the others take nothing that waits.
func (s *slot) takeLimited(into []task) ([]task, error) {
	if s.limiter == nil {
		return s.take(into)
	}
	if s.waitBehind() {
		defer func() { <-s.limiting }()
	}
	tasks, err := s.take(into)
	if err != nil || len(tasks) == 0 {
		return tasks, err
	}
	s.set(tasks)
	return tasks, s.waitForRate(tasks)
}

// waitBehind waits until no other slot takes messages, and reports false in a drain: then each finishes what it can.
func (s *slot) waitBehind() bool {
	select {
	case s.limiting <- struct{}{}:
		return true
	default:
	}
	defer s.resting()()
	select {
	case s.limiting <- struct{}{}:
		return true
	case <-s.taking.Done():
		return false
	}
}

// waitForRate waits until a handler may have these messages of the slot's. If nothing is to be handled any more, it leaves all that the
// slot has to the broker, and returns an error.
func (s *slot) waitForRate(tasks []task) error {
	if s.limiter == nil {
		return nil
	}
	n := 0
	for i := range tasks {
		if !tasks[i].paid {
			tasks[i].paid = true
			n++
		}
	}
	if n == 0 || s.limiter.AllowN(time.Now(), n) {
		return nil
	}
	s.renewAll()
	ctx := s.taking
	if s.finishes {
		ctx = s.working
	}
	n, err := s.pay(ctx, n)
	if err != nil && !s.finishes && s.mayFinish(tasks) {
		s.finishes = true
		_, err = s.pay(s.working, n)
	}
	if err != nil {
		s.leaveOwn("it waited for the rate limit until the end")
	}
	return err
}

// pay takes n tokens of the limiter, as many at a time as it may have within a second, or Workers that take fewer at a time would always be
// first. It keeps its place among those that wait, or Workers that happen to look in time would. It looks each second whether the limit was
// changed so that another place would be better, or the Consumer is closed. If it fails it returns how many are missing.
func (s *slot) pay(ctx context.Context, n int) (missing int, err error) {
	for n > 0 {
		limit, burst := s.limiter.Limit(), s.limiter.Burst()
		some := min(n, max(1, burst), max(1, int(min(float64(n), float64(limit)))))
		r := s.limiter.ReserveN(time.Now(), some)
		for r.Delay() > 0 {
			if err = sleep(ctx, min(r.Delay(), time.Second)); err == nil {
				err = s.ifClosed(s.tasks[0])
			}
			if err != nil {
				r.Cancel()
				return n, err
			}
			if l, b := s.limiter.Limit(), s.limiter.Burst(); l != limit || b != burst {
				limit, burst = l, b
				other := s.limiter.ReserveN(time.Now(), some)
				if other.Delay() < r.Delay() {
					r, other = other, r
				}
				other.Cancel()
			}
		}
		n -= some
	}
	return 0, nil
}
