package redelivery

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// publisher publishes retries and dead letters.
type publisher struct {
	publishing.Publisher                       // nil without retries and dead letters
	own                  *reconsume.Reconsumer // Close closes it; nil if it is the caller's
	retryTopic           string                // its whole name; messages of it may come early; "" if there is none that somebody reads
	maxDeliveries        uint32                // after which a message is a dead letter; 0 for none
	dead, moves          chores
	underway             chan struct{} // full when maxUnderway of them have no answer
}

// newPublisher returns one that publishes by the Reconsumer of WithReconsumer, if there is one.
func newPublisher(s *settings, policy DeadLetterPolicy) *publisher {
	p := &publisher{underway: make(chan struct{}, maxUnderway), maxDeliveries: policy.MaxDeliveries}
	if s.reconsumer != nil {
		p.Publisher, p.retryTopic = publishing.PublisherOf(s.reconsumer, false), topicname.Full(s.reconsumer.RetryTopic())
	}
	if policy.Discard {
		p.discards(policy)
	}
	return p
}

// subscribed is the retry topic that the Consumer subscribes to by itself; "" if there is none.
func (p *publisher) subscribed() string {
	if p.own == nil {
		return ""
	}
	return p.retryTopic
}

// noRetryTopic returns an error if there is no retry topic.
func (p *publisher) noRetryTopic() error {
	if p.retryTopic == "" {
		return ErrNoRetryTopic
	}
	return nil
}

// noDeadLetterTopic returns an error if there is no dead letter topic.
func (p *publisher) noDeadLetterTopic() error {
	if p.Publisher == nil {
		return noDeadLetterTopic{}
	}
	return nil
}

// isRetry reports whether a message came from the retry topic.
func (p *publisher) isRetry(msg pulsar.Message) bool {
	return p.retryTopic != "" && publishing.IsFrom(p.retryTopic, msg)
}

// firstPublished returns when a message, or the one that it is a retry of, was published first; zero for one that is not upstream's and panics
// when asked.
func (p *publisher) firstPublished(msg pulsar.Message) (at time.Time) {
	defer func() { _ = recover() }()
	if p.isRetry(msg) {
		return publishing.FirstPublished(msg)
	}
	return msg.PublishTime()
}

// givesUp reports whether a message was delivered too often to be delivered again. At its first delivery here a message of a batch is
// delivered whatever the broker's count: that counts its siblings too, which may have been acknowledged.
func (p *publisher) givesUp(d *ledger.Delivery) bool {
	return p.maxDeliveries > 0 && d.Count >= p.maxDeliveries && (d.Hand > 0 || d.Message.ID().BatchSize() <= 1)
}

// giveUp has a message published as a dead letter. Until then it waits here as after any nack: it comes back, and is given up
// again, if it cannot be published or does not fit the memory limit.
func (c *Consumer) giveUp(d ledger.Delivery, delay time.Duration, why ledger.Why, reason error) {
	deliveries := d.Count
	if why == ledger.Leaving {
		deliveries++
	}
	if m, ok := d.Message.(*givenUp); ok { // before, and it was not published in time
		d.Message, reason = m.Message, m.reason
		delay = max(delay, time.Second) // publishing may fail at once, and the policy say 0
	}
	because := publishing.MaxDeliveries
	if _, ok := reason.(*ttlError); ok { //nolint:errorlint // as nackAs made it
		because = publishing.TTL
	}
	d.Message = &givenUp{d.Message, reason}
	if reason == nil {
		reason = fmt.Errorf("delivered %d times and not acknowledged", deliveries)
	}
	c.moveTo(&c.publisher.dead, d, why, delay, reason, "dead letter",
		func(ctx context.Context, cm pulsar.ConsumerMessage) (wait func() error) {
			cm.Message = identified{cm.Message, cm.ID(), max(1, deliveries) - 1} // as at the last delivery
			publishing.Of(ctx).For(because)
			return c.publisher.StartDeadLetter(ctx, cm, reason)
		})
}

// giveUpAside is giveUp for callers that a policy must not call back to, as one that calls Close or Seek does.
func (c *Consumer) giveUpAside(d ledger.Delivery, why ledger.Why) {
	c.start(&c.callbacks, func(context.Context) {
		c.withDelay(c.settings.nackBackoff, d.Count, func(delay time.Duration) { c.giveUp(d, delay, why, nil) })
	})
}

// givenUp is a message that is to be published as a dead letter, with the reason that somebody gave.
type givenUp struct {
	pulsar.Message
	reason error
}

// move has a message that failed, or is snoozed, published to the retry topic.
func (c *Consumer) move(d ledger.Delivery, delay time.Duration, snoozed bool) {
	until, why := time.Now().Add(delay), ledger.Leaving
	if snoozed {
		why = ledger.SnoozedAway
	}
	c.moveTo(&c.publisher.moves, d, why, delay, nil, "moving a nacked message to the retry topic",
		func(ctx context.Context, cm pulsar.ConsumerMessage) (wait func() error) {
			return c.publisher.StartLater(ctx, cm, publishing.Retry{Delay: time.Until(until), Nacked: true, Snoozed: snoozed})
		})
}

// moveTo nacks a message and publishes it elsewhere, unless it is back before that. Dead letters are published in the order of
// the calls, and no more than maxUnderway messages wait for the broker's answer.
func (c *Consumer) moveTo(ch *chores, d ledger.Delivery, why ledger.Why, delay time.Duration, reason error, what string, start publication) {
	s, had, kept := c.ledger.Nack(d, delay, d.Message, why)
	if had && why == ledger.Leaving {
		c.fails(&s, delay, reason)
	}
	if !kept {
		return
	}
	if why == ledger.SnoozedAway {
		d.Hand++ // Nack began another hand-over
	}
	c.publishWaiting(ch, d, what, start)
}

// publishWaiting publishes a message elsewhere that waits since hand-over d, unless it is back before that.
func (c *Consumer) publishWaiting(ch *chores, d ledger.Delivery, what string, start publication) {
	d.Message = nil // the ledger has it, and counts its bytes
	c.start(ch, func(session context.Context) {
		select {
		case c.publisher.underway <- struct{}{}:
		case <-session.Done():
			return
		}
		leave := func() { <-c.publisher.underway }
		s := ledger.Settling{Leaves: true}
		if !c.ledger.SettleWaiting(d, &s) {
			leave()
			return
		}
		finish := func() error { return errPanicked }
		defer func() {
			go c.safely(func() {
				defer leave()
				if err := finish(); err != nil && c.life.ended.Err() == nil {
					c.report(what, err, "message", s.ID)
				}
			})
		}()
		finish = c.publish(session, s, original(s.Message), start)
	})
}

// maxUnderway is how many messages may wait for the broker's answer that nobody waits for here: as many as upstream's producer has by default.
const maxUnderway = 1000

func (p *publisher) close() {
	if p.own != nil {
		p.own.Close()
	}
}
