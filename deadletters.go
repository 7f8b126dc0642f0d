package redelivery

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/partition"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/upstream"
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
	x := leaver{id: d.ID, hand: d.Hand, count: max(1, deliveries) - 1, attempts: deliveries}
	if c.givesBack(d, &x, partition.Failure{Delay: delay, Uncounted: !had, Note: givenUp{reason}}) && had {
		c.noteFailure(&d, delay, nacking{reason: why})
	}
	c.leaveAside(x, "dead letter", func(ctx context.Context, cm pulsar.ConsumerMessage) (wait func() error) {
		publishing.Of(ctx).For(because)
		return c.publisher.StartDeadLetter(ctx, cm, why)
	})
}

// moveToRetryTopic publishes a nacked or snoozed message to the retry topic.
func (c *Consumer) moveToRetryTopic(d partition.Delivery, delay time.Duration, snoozed bool) {
	until := time.Now().Add(delay)
	x := leaver{id: d.ID, hand: d.Hand, count: d.Count, attempts: d.Count + 1}
	if c.givesBack(d, &x, partition.Failure{Delay: delay, Uncounted: snoozed}) && !snoozed {
		c.noteFailure(&d, delay, nacking{})
	}
	c.leaveAside(x, "moving a nacked message to the retry topic",
		func(ctx context.Context, cm pulsar.ConsumerMessage) (wait func() error) {
			return c.publisher.StartLater(ctx, cm,
				publishing.Retry{Delay: time.Until(until), Nacked: true, Snoozed: snoozed})
		})
}

// givesBack nacks a message that is about to be published elsewhere, so that it comes back if the publication fails.
// had is false if the application no longer had the message.
func (c *Consumer) givesBack(d partition.Delivery, x *leaver, f partition.Failure) (had bool) {
	f.ID, f.Hand = d.ID, d.Hand
	if body, ok := d.Body.(pulsar.Message); ok {
		x.msg, f.Copy.Body = body, body
		f.Copy.Size, f.Copy.Buffer = upstream.Weigh(body)
	}
	now := c.lock()
	_, had, _ = c.group.Nack(now, f)
	c.unlockAndAct(now)
	if !had {
		x.msg = nil
	}
	return had
}

// leaveAside publishes a waiting message elsewhere, on a goroutine of the Consumer, unless the message is delivered
// again first. Messages are published in the order of the calls, and no more than maxUnderway wait for the broker's
// answer.
func (c *Consumer) leaveAside(x leaver, what string, start publication) {
	if x.msg == nil { // nothing to publish: the broker sends the message when it is due
		return
	}
	c.letters.add(c, func() {
		select {
		case c.room <- struct{}{}:
		case <-c.cut.Done():
			return
		}
		finish, err := c.leave(c.cut, x, start)
		if err != nil {
			<-c.room
			return
		}
		go func() {
			err := finish()
			if <-c.room; err != nil && !c.isOver() {
				c.report(what, err, "message", x.msg.ID())
			}
		}()
	})
}

// maxUnderway limits the publications that no caller waits for and that the broker has not answered. Upstream's
// producer has the same limit by default.
const maxUnderway = 1000
