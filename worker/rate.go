package worker

import (
	"time"

	"golang.org/x/time/rate"
)

// WithRateLimit (default: none) limits how many messages a second handlers get. Each call of a handler takes one token of limiter for
// each of its messages, retries included. Several Workers may share a limiter, and its limit may be changed at any time. One message or
// batch at a time waits for the limiter, and its ack timeout is renewed; the others stay with the Consumer. A message that waits when a
// drain begins is left to the broker, and one that waits during a Pause goes on after Resume. The limiter's burst must be at least 1.
func WithRateLimit(limiter *rate.Limiter) Option {
	return func(s *settings) error {
		switch {
		case limiter == nil:
			return invalid("WithRateLimit", "nil", "a *rate.Limiter")
		case limiter.Burst() < 1 && limiter.Limit() != rate.Inf:
			return invalid("the burst of WithRateLimit", limiter.Burst(), "1 or more")
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
	return tasks, s.waitForRate(len(tasks))
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

// waitForRate waits until a handler may have n of the slot's messages. If nothing is to be handled any more, it leaves them to the
// broker, and returns an error.
func (s *slot) waitForRate(n int) (err error) {
	if s.limiter == nil || s.limiter.AllowN(time.Now(), n) {
		return nil
	}
	s.renewAll()
	ctx := s.taking
	if s.finishes {
		ctx = s.working
	}
	for n > 0 && err == nil {
		some := min(n, max(1, s.limiter.Burst()))
		if s.limiter.WaitN(ctx, some) == nil {
			n -= some
		} else { // it is over, or the limiter lets nothing through at present
			err = sleep(ctx, time.Second)
		}
	}
	if err == nil && !s.finishes {
		_, err = s.valve.wait(ctx)
	}
	if err != nil {
		s.leaveOwn("it waited for the rate limit until the end")
	}
	return err
}
