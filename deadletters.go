package redelivery

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/partition"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

// givenUp is the note of a message that becomes a dead letter, with the reason that the application gave.
type givenUp struct{ reason error }

// giveUp publishes a message as a dead letter. Until the dead letter is published, the message waits here as after any
// nack. If it cannot be published, the message comes back and is given up again. had says that the application had the
// message, so that this delivery counts.
func (c *Consumer) giveUp(d partition.Delivery, delay time.Duration, reason error, had bool) {
	deliveries := d.Count
	if had {
		deliveries++
	} else if before, ok := d.Note.(givenUp); ok { // it was given up before, and not published in time
		reason = before.reason
		delay = max(delay, time.Second) // or publishing that fails at once would be repeated without a pause
	}
	because := publishing.MaxDeliveries
	if _, ok := reason.(*ttlError); ok { //nolint:errorlint // as nackAs made it
		because = publishing.TTL
	}
	why := reason
	if why == nil {
		why = fmt.Errorf("delivered %d times and not acknowledged", deliveries)
	}
	d.Count = max(1, deliveries) - 1
	c.leaveLater(d, partition.Failure{Delay: delay, Uncounted: !had, Note: givenUp{reason}}, why, "dead letter",
		func(ctx context.Context, cm pulsar.ConsumerMessage, note *publishing.Note) (wait func() error) {
			note.Reason = because
			return c.publisher.StartDeadLetter(ctx, cm, why, note)
		})
}

// moveToRetryTopic publishes a nacked or snoozed message to the retry topic.
func (c *Consumer) moveToRetryTopic(d partition.Delivery, delay time.Duration, how nacking) {
	until := time.Now().Add(delay)
	c.leaveLater(d, partition.Failure{Delay: delay, Uncounted: how.snoozed}, how.reason,
		"moving a nacked message to the retry topic",
		func(ctx context.Context, cm pulsar.ConsumerMessage, note *publishing.Note) (wait func() error) {
			return c.publisher.StartLater(ctx, cm,
				publishing.Retry{Delay: time.Until(until), Nacked: true, Snoozed: how.snoozed}, note)
		})
}

// leaveLater nacks a message, so that it waits here until it is published elsewhere, on a goroutine of the Consumer. If
// it cannot be published, it comes back. If it comes back before its turn, it is not published. Messages are published
// in the order of the calls.
func (c *Consumer) leaveLater(d partition.Delivery, f partition.Failure, reason error, what string, start publication) {
	f.ID, f.Hand, f.Copy = d.ID, d.Hand, copyOf(d.Body.(pulsar.Message))
	now := c.lock()
	_, had, _ := c.group.Nack(now, f)
	c.unlockAndAct(now)
	if !had { // the application no longer has it
		return
	}
	if !f.Uncounted {
		c.noteFailure(&d, f.Delay, nacking{reason: reason})
	}
	c.letters.add(c, func() {
		_ = c.leaveBehind(c.cut, d, start, func(err error) {
			if err != nil && !c.isOver() {
				c.report(what, err, "message", d.Object)
			}
		})
	})
}

// leaveBehind is leave for callers that do not wait: done gets the outcome, on a goroutine of its own, unless
// leaveBehind returns an error. It waits until fewer than maxUnderway publications are under way.
func (c *Consumer) leaveBehind(ctx context.Context, d partition.Delivery, start publication, done func(error)) error {
	select {
	case c.room <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ended.Done():
		return ErrClosed
	}
	finish, err := c.leave(ctx, d, start)
	if err != nil {
		<-c.room
		return err
	}
	go func() {
		err := finish()
		<-c.room // before done, which may reconsume
		done(err)
	}()
	return nil
}

// maxUnderway limits the publications that no caller waits for and that the broker has not answered. Upstream's
// producer has the same limit by default.
const maxUnderway = 1000
