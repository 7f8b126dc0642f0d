package worker

import (
	"context"
	"time"
)

// This file decides which slot may take messages, and when. A pause, an outage, the rate limit and a drain keep slots
// from taking messages, and with key order the memory limit does too (room.go).

// next gives the slot the messages to handle next, and returns how many of them the handler gets in one call. It
// returns 0 if there are none yet, and an error if no more will come.
func (s *slot) next() (n int, err error) {
	if err = s.fill(); err != nil || len(s.tasks) == 0 {
		return 0, err
	}
	n = s.share()
	if s.crashes != nil {
		return s.admit(n)
	}
	if s.tasks[0].waited || s.batch.MaxMessages > 1 || s.limiter != nil { // they may be lost by now
		n = s.dropLost(n)
	}
	return n, nil
}

// share returns the number of messages that the slot hands to the handler next.
func (s *slot) share() int {
	n := len(s.tasks)
	if s.portion > 0 {
		n = min(s.portion, n)
	}
	if s.crashes != nil {
		n = s.crashes.share(s.tasks[:n])
	}
	return n
}

// fill gives the slot messages: those it still has, one to try in an outage, or new ones. It may return with none.
func (s *slot) fill() (err error) {
	if len(s.tasks) == 0 {
		s.portion = 0
	}
	if s.outage.isOn() {
		if len(s.tasks) == 0 {
			return s.takeProbe()
		}
		if s.putAside() {
			return nil // with no messages: loop checks whether the slot has lost its place
		}
	}
	switch {
	case len(s.tasks) > 0:
		err = s.waitToGoOn()
	case s.limiter != nil:
		err = s.takeLimited()
	default:
		err = s.take()
	}
	if err == nil && len(s.tasks) > 0 && s.outage.isOn() {
		s.putAside()
	}
	return err
}

// putAside puts the slot's messages aside. It reports false if the outage is over.
func (s *slot) putAside() bool {
	if !s.outage.putAside(s.tasks) {
		return false
	}
	s.holdAll(nil)
	return true
}

// waitToGoOn waits out the pause before a local retry, if there is one. If a drain begins, it leaves the slot's
// messages to the broker, and returns an error.
func (s *slot) waitToGoOn() error {
	err := sleep(s.taking, s.pause)
	if err != nil {
		s.leaveOwn(untried)
		return err
	}
	return s.waitForRate()
}

// takeLimited takes messages for a handler, at the rate limit. Only one slot takes at a time, so that the others do not
// hold messages while they wait for the limiter. In a drain a slot that waits for its turn takes messages of begun
// batches without the turn.
func (s *slot) takeLimited() error {
	if !s.limiting.tryLock() {
		rested := s.resting()
		err := s.limiting.lockOr(s.taking)
		rested()
		if err != nil {
			if err = s.takeToFinish(); err == nil {
				err = s.waitForRate()
			}
			return err
		}
	}
	defer s.limiting.unlock()
	if err := s.take(); err != nil {
		return err
	}
	return s.waitForRate()
}

// receiver takes a message. Its error says that none came before ctx was done, or that no more will come. It is a
// method expression: a method value would copy each task once more.
type receiver func(r *run, ctx context.Context) (task, error)

// take takes the messages that a slot handles next. In an outage it takes none. Its error says that no more will come.
func (s *slot) take() error {
	for {
		open, err := s.pauser.wait(s.taking, s.resting)
		if err != nil {
			return s.takeToFinish()
		}
		if s.outage != nil {
			if tasks, over := s.outage.takeBack(); !over || len(tasks) > 0 {
				s.holdAll(tasks)
				return nil
			}
		}
		switch err := s.takeBatch(open, (*run).receive); {
		case err == nil:
			return nil
		case open.Err() == nil:
			return err // the Consumer is lost
		}
	}
}

// receive takes a message from the Consumer, or with key order one that may be handled now.
func (r *run) receive(ctx context.Context) (t task, err error) {
	if r.lanes != nil {
		return r.lanes.next(ctx)
	}
	for {
		t.msg, err = r.consumer.Receive(ctx)
		if err != nil || !r.isAtWork(t.msg) {
			return t, err
		}
	}
}

// takingTime is how long a slot takes messages that are there already, even if MaxWait is shorter.
const takingTime = 10 * time.Millisecond

// takeBatch takes a batch of messages by calling receive. A batch for a Handler has one message.
func (s *slot) takeBatch(ctx context.Context, receive receiver) error {
	if s.batch.MaxMessages > 1 {
		return s.collect(ctx, receive)
	}
	t, err := receive(s.run, ctx)
	if err == nil {
		s.add(&t)
	}
	return err
}

// collect takes a batch. Only one slot at a time collects: otherwise each slot might wait with a partly filled batch.
func (s *slot) collect(ctx context.Context, receive receiver) error {
	if err := s.collecting.lockOr(ctx); err != nil {
		return err
	}
	defer s.collecting.unlock()
	t, err := receive(s.run, ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	inTime, cancel := context.WithTimeout(ctx, s.batch.MaxWait)
	defer cancel()
	// An error means that MaxWait is over, that a pause or a drain began, or that the Consumer is lost, which the next
	// call reports.
	for bytes := int64(0); err == nil; {
		s.add(&t)
		bytes += int64(len(t.msg.Payload()))
		if len(s.tasks) >= s.batch.MaxMessages || bytes >= s.batch.MaxBytes {
			break
		}
		t, err = receive(s.run, inTime)
		if err != nil && time.Since(began) < takingTime {
			t, err = s.atOnce(ctx, receive)
		}
	}
	return nil
}

// atOnce takes a message if one is there.
func (s *slot) atOnce(ctx context.Context, receive receiver) (task, error) {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Microsecond) // if ctx were done, Receive would return no message
	defer cancel()
	return receive(s.run, ctx)
}

// untried is the reason that is logged when a message that waited for its next try is left to the broker.
const untried = "the Run ends before its next try"

// leaveAll leaves messages to the broker when no more are taken. It does not free their lanes, since later messages of
// their keys must not overtake them.
func (r *run) leaveAll(tasks []task, why string) {
	for _, t := range tasks {
		r.leave(t, why, nil)
	}
}

// leaveOwn leaves the slot's messages to the broker.
func (s *slot) leaveOwn(why string) {
	s.leaveAll(s.tasks, why)
	s.holdAll(nil)
}

// sleep waits for a while. If ctx is done first, it returns the error of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	if d > 0 {
		within(d, ctx.Done())
	}
	return ctx.Err()
}
