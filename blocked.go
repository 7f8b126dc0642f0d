package redelivery

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// blocked is what is known of a broker that may have stopped sending, since too much is unacknowledged.
type blocked struct {
	quiet  int // seconds since the last message came, while somebody waited; for whoever has the turn
	on     atomic.Bool
	logged atomic.Int64 // when, by Ledger.Now; 0 for never
	chores chores
}

const (
	// nearLimit is close to where the broker stops sending on Shared and Key_Shared: 50,000 unacknowledged messages for each consumer of a
	// partition, by default (maxUnackedMessagesPerConsumer).
	nearLimit = 45_000
	// someUnacknowledged is how many there are at least where a lower limit stops the broker. Then nothing comes for quietTime although
	// there is more: it is asked for that then, and again after each checkTime, in seconds.
	someUnacknowledged   = 100
	quietTime, checkTime = 10, 30
)

// ends notes that a message came.
func (b *blocked) ends() {
	if b.quiet != 0 {
		b.quiet = 0
		b.on.Store(false)
	}
}

// idle acts where nothing came for so long although somebody waited.
func (c *Consumer) idle(quiet time.Duration) {
	if quiet < time.Second {
		c.ledger.Empty()
		return
	}
	unacknowledged := c.ledger.Idle()
	if c.hooks.redeliversAll {
		return
	}
	b := &c.blocked
	b.quiet++
	switch {
	case unacknowledged >= nearLimit:
		c.isBlocked(unacknowledged)
	case unacknowledged < someUnacknowledged:
		b.on.Store(false)
	case b.on.Load():
		c.moveWaiting(unacknowledged)
	case b.quiet >= quietTime && (b.quiet-quietTime)%checkTime == 0:
		c.start(&b.chores, func(context.Context) {
			if c.isBehind() {
				c.isBlocked(unacknowledged)
			}
		})
	}
}

// isBehind reports whether topics have messages that did not come. Retries may wait for their time at the broker.
func (c *Consumer) isBehind() bool {
	var all []pulsar.TopicMessageID
	for _, child := range c.ledger.Consumers() { // upstream's consumer of a pattern does not lock its own list of them
		var last []pulsar.TopicMessageID
		if err := c.call(func() (err error) { last, err = child.GetLastMessageIDs(); return err }); err != nil {
			return false
		}
		all = append(all, last...)
	}
	return slices.ContainsFunc(all, func(id pulsar.TopicMessageID) bool {
		return topicname.Base(id.Topic()) != c.publisher.retryTopic && c.ledger.IsBehind(id.Topic(), id)
	})
}

// isBlocked tells that the broker may have stopped sending, and takes what waits here off its account, if there is a retry topic.
func (c *Consumer) isBlocked(unacknowledged int) {
	if c.blocked.on.CompareAndSwap(false, true) {
		if now := c.ledger.Now() + 1; c.blocked.logged.Load() == 0 || now-time.Duration(c.blocked.logged.Load()) >= time.Minute {
			c.blocked.logged.Store(int64(now))
			c.tell(func() {
				c.log(slog.LevelWarn, "the broker may have stopped sending, because many messages are unacknowledged. Waiting messages count, "+
					"and without batch-index acknowledgement a whole batch counts while one of its messages waits", "unacknowledged", unacknowledged)
			})
		}
		if c.observer.Blocked != nil {
			c.tell(func() { c.observer.Blocked(Blocked{c, c.observer.subscription, unacknowledged}) })
		}
	}
	c.moveWaiting(unacknowledged)
}

// moveWaiting moves messages that wait, the oldest first, to the retry topic, a tenth of what is unacknowledged. There they do not keep the
// broker from sending. To give them back would not help: it would send them again at once, and count them.
func (c *Consumer) moveWaiting(unacknowledged int) {
	if c.publisher.retryTopic == "" {
		return
	}
	for _, w := range c.ledger.Waits(quietTime*time.Second, unacknowledged/10+1) {
		until := time.Now().Add(w.Delay)
		c.publishWaiting(&c.publisher.moves, w.Delivery, "moving a message that waits to the retry topic",
			func(ctx context.Context, cm pulsar.ConsumerMessage) (wait func() error) {
				return c.publisher.StartLater(ctx, cm, publishing.Retry{Delay: time.Until(until), Nacked: true})
			})
	}
}
