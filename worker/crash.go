package worker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/internal/durations"
)

// WithCrashLimit (default: none) limits how many processes a message may crash. A message becomes a dead letter,
// without another call of the handler, if it was in a handler n times when the process ended without closing the
// Consumer (killed for lack of memory, or by os.Exit). The option needs redelivery.WithAttemptLog and a dead letter
// topic; without a dead letter topic such a message is nacked each time. n must be at least 1. n = 3 spares messages
// that merely were in a handler when another message crashed the process. With n = 1 even a message that was handled in
// the last tenth of a second before the crash becomes a dead letter, since its acknowledgement was not sent yet.
//
// For a message that is in a handler for longer than WithBegunAfter, the Worker writes a record to the log, and removes
// it later. For about its first 2,000 messages, for as many after a crash, and whenever writing takes at most a tenth
// of its time, the Worker writes the record before it calls the handler. This takes a few milliseconds. So a message
// that crashes every process that gets it crashes only a few. A message that was in a handler during a crash is handled
// alone (with NewBatch the other messages of its batch wait). It is handled only when the consumer that had it is known
// to have crashed: the log has not heard from that consumer for six seconds, or longer if there are many consumers. A
// process that is killed in the middle of a drain counts as crashed.
func WithCrashLimit(n int) Option {
	return func(s *settings) error {
		if n < 1 {
			return invalid("WithCrashLimit", n, "1 or more")
		}
		s.crashLimit = n
		return nil
	}
}

// WithBegunAfter (default: 50ms) sets after how long in a handler a message is recorded in the log of attempts. It has
// no effect without WithCrashLimit. If a busy Worker crashes before d is over, the crash is not counted, but the other
// consumers then record each message before they call its handler. With a longer d fewer messages are recorded; with 0
// each message is. d must be 0 or more.
func WithBegunAfter(d time.Duration) Option {
	return func(s *settings) error {
		if want := durations.Wanted(d, true); want != "" {
			return invalid("WithBegunAfter", d, want)
		}
		s.begunAfter = d
		return nil
	}
}

// CrashError is the reason of a dead letter that WithCrashLimit made.
type CrashError struct {
	Crashes int // how many processes ended while the message was in a handler
}

func (e *CrashError) Error() string {
	if e.Crashes == 1 {
		return "crashed its consumer once"
	}
	return fmt.Sprintf("crashed its consumer %d times", e.Crashes)
}

const (
	beginTime   = 5 * time.Second  // how long a record may take; then the handler is called without it
	suspectTime = 30 * time.Second // how long a suspect may take; after that the next suspect is handled, too
)

// crashes keeps a message from ending one process after another. A suspect is a message that was in a handler during a
// crash.
type crashes struct {
	*run
	log  *attempts.Log
	turn turn // held while a suspect is handled
}

func newCrashes(r *run) *crashes {
	log := r.consumer.AttemptLog()
	log.KeepAlive()
	return &crashes{r, log, newTurn()}
}

// needsLog returns an error if WithCrashLimit is given and the Consumer has no log of attempts.
func (s *settings) needsLog(consumer *redelivery.Consumer) error {
	if s.crashLimit > 0 && consumer.AttemptLog() == nil {
		return fmt.Errorf("%w: worker: WithCrashLimit is given, want a Consumer with redelivery.WithAttemptLog",
			redelivery.ErrInvalidOption)
	}
	return nil
}

// limit returns the error for a message that has reached the limit, and nil for any other message.
func (c *crashes) limit(msg pulsar.Message) error {
	if n := int(c.log.Crashes(attempts.KeyOf(msg))); n >= c.crashLimit {
		return Permanent(&CrashError{n})
	}
	return nil
}

func (c *crashes) isAtLimit(msg pulsar.Message) bool { return c.limit(msg) != nil }

// warn logs that a message was in a handler when a consumer crashed, once for each crash.
func (c *crashes) warn(t task) {
	key := attempts.KeyOf(t.msg)
	crashes := c.log.Crashes(key)
	if crashes == 0 {
		return
	}
	r, ok := c.log.Find(key)
	id := t.msg.ID().String()
	if !ok || r.Crashes == crashes || !c.repeats.first(fmt.Sprintf("crash %d: %s %s", crashes, t.msg.Topic(), id),
		nil) {
		return
	}
	name := r.Begun.String()
	for _, s := range c.log.Sessions() {
		if s.ID == r.Begun && s.Name != "" {
			name = s.Name
		}
	}
	then := "it is handled alone"
	if int(crashes) >= c.crashLimit {
		then = "it becomes a dead letter"
	}
	c.logger.Warn(fmt.Sprintf("worker: message %s was in a handler when %s died, crash %d of %d: %s", id, name, crashes,
		c.crashLimit, then),
		append(c.who(), "topic", t.msg.Topic(), "message", id)...)
}

func (c *crashes) isSuspect(t task) bool { return c.log.Crashes(attempts.KeyOf(t.msg)) > 0 }

// share returns how many of a slot's tasks to handle together. A suspect is handled alone.
func (c *crashes) share(tasks []task) int {
	if i := slices.IndexFunc(tasks, c.isSuspect); i >= 0 {
		return max(1, i)
	}
	return len(tasks)
}

// admit waits until a handler may have the slot's first n messages, and returns n. If some are lost by then, admit
// removes the records of all n and returns 0: the record of a lost message would make its new consumer wait.
func (s *slot) admit(n int) (admitted int, err error) {
	keys := keysOf(s.tasks[:n])
	s.returned, err = s.crashes.admit(s.tasks[:n])
	if err != nil {
		s.leaveOwn(untried)
		return 0, err
	}
	if s.dropLost(n) == n {
		return n, nil
	}
	s.returned()
	for _, k := range keys {
		s.crashes.log.Ended(k)
	}
	return 0, nil
}

// admit waits until tasks may be handled, and returns a function to call when their handler has returned. It returns an
// error if the handlers' contexts end first.
func (c *crashes) admit(tasks []task) (handled func(), err error) {
	for _, t := range tasks {
		c.warn(t)
	}
	if c.isAtLimit(tasks[0].msg) {
		return func() {}, nil
	}
	keys, careful := keysOf(tasks), c.isSuspect(tasks[0])
	for _, k := range keys {
		careful = c.log.IsCareful(k) || careful
	}
	if careful {
		return c.admitCarefully(tasks, keys)
	}
	var record sync.Once // done by the record or by the end of the handler, so that no record is written after that
	timer := time.AfterFunc(c.begunAfter, func() {
		record.Do(func() {
			for _, k := range keys {
				c.log.Begun(k)
			}
		})
	})
	return func() {
		timer.Stop()
		record.Do(func() {})
	}, nil
}

// admitCarefully records that tasks are in a handler before the handler is called. A suspect waits until no other
// suspect is handled.
func (c *crashes) admitCarefully(tasks []task, keys []attempts.Key) (handled func(), err error) {
	suspect, release := c.isSuspect(tasks[0]), func() {}
	if suspect {
		if err := c.turn.lockOr(c.working); err != nil {
			return nil, err
		}
		release = c.turn.unlockWithin(suspectTime, func() {})
	}
	for _, k := range keys[1:] {
		c.log.Begun(k)
	}
	if err := c.writeInTime(c.log.Begin, keys[0]); err != nil {
		c.logger.LogAttrs(c.lasting, slog.LevelWarn,
			"worker: the log of attempts could not be written: a crash now would not be counted",
			append(about(tasks[0].counted()), slog.Any("error", err))...)
	}
	if !suspect {
		return release, nil
	}
	return func() {
		defer release()
		// The removal is written before the next suspect is handled: that suspect may end the process before the
		// acknowledgement of this message is sent.
		_ = c.writeInTime(c.log.End, keys[0])
	}, nil
}

// ended removes the records that messages are in a handler, for messages that will be handled again. The record of a
// settled message is removed in any case.
func (c *crashes) ended(tasks []task, outcomes []outcome) {
	for i := range tasks {
		if outcomes[i].verb == hold {
			c.log.Ended(attempts.KeyOf(tasks[i].msg))
		}
	}
}

func keysOf(tasks []task) (keys []attempts.Key) {
	for _, t := range tasks {
		keys = append(keys, attempts.KeyOf(t.msg))
	}
	return keys
}

func (c *crashes) writeInTime(write func(context.Context, attempts.Key) error, key attempts.Key) error {
	ctx, cancel := context.WithTimeout(c.lasting, beginTime)
	defer cancel()
	return write(ctx, key)
}

// isCrash reports whether limit made err. Then no handler was called, and the classifier does not get err.
func isCrash(err error) bool {
	permanent, ok := err.(*permanentError) //nolint:errorlint // as limit made it
	if !ok {
		return false
	}
	_, ok = permanent.error.(*CrashError) //nolint:errorlint // likewise
	return ok
}
