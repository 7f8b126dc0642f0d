package redelivery

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/ledger"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/nack"
)

// Nack redelivers a message that the application could not process, after the delay that the nack policy gives for its redelivery
// count (PIP-106). On the last delivery by MaxDeliveries (WithDeadLetterPolicy, or DLQ) the message becomes a dead letter at once. A second nack
// changes nothing, and neither does a nack of an earlier delivery. Until the message comes back, it may still be acknowledged. A
// message of a non-persistent topic does not come back. A nil or foreign message is logged and counted in Stats.
func (c *Consumer) Nack(msg pulsar.Message) {
	c.failNack(c.nackMessage(msg, nil, nil))
}

// NackWithReason is Nack with a reason. On the last delivery the message becomes a dead letter at once, and the dead letter
// carries the reason. If reason is nil, the dead letter says how often the message was delivered. NackWithReason returns ErrClosed
// after Close, and an error for a nil or foreign message.
func (c *Consumer) NackWithReason(msg pulsar.Message, reason error) error {
	return c.nackMessage(msg, nil, reason)
}

// NackWithDelay is Nack with a delay that replaces the policy's this once. A negative delay counts as 0. It returns ErrClosed after
// Close, and an error for a nil or foreign message.
func (c *Consumer) NackWithDelay(msg pulsar.Message, delay time.Duration) error {
	return c.nackMessage(msg, &delay, nil)
}

// NackWithDelayAndReason is NackWithDelay with the reason of NackWithReason.
func (c *Consumer) NackWithDelayAndReason(msg pulsar.Message, delay time.Duration, reason error) error {
	return c.nackMessage(msg, &delay, reason)
}

// Snooze is NackWithDelay, but this delivery does not count: the redelivery count stays the same, and so do the policy's next delay and
// the deliveries left by MaxDeliveries. Use it if the message cannot be processed yet and nothing failed.
//
// The message waits in memory, whatever WithRedeliveryFrom says, and stays with this Consumer: on Key_Shared its key does not move to a
// consumer that joins. A message that does not fit the memory limit comes from the broker when it is due; the broker counts that on Shared
// and Key_Shared. After a restart the broker sends the message at once. With WithNackRetryTopic a message with a long delay waits in the retry
// topic instead, and survives a restart; there it does not count as unacknowledged.
func (c *Consumer) Snooze(msg pulsar.Message, delay time.Duration) error {
	n, err := c.nameOf(msg)
	if err != nil {
		return err
	}
	return c.nackAs(n, msg, &delay, nil, ledger.Snoozed)
}

// NackID is Nack by message id. Unlike NackID of pulsar-client-go, it follows the policy. The id of a whole batch, whose BatchIdx is -1,
// nacks those messages of it that the application has. An id that this Consumer did not deliver, or has settled, starts at redelivery
// count 0. A message that did not fit the memory limit comes from the broker when it is due; if that was its last delivery, it is
// delivered once more, since the Consumer has no payload to publish as a dead letter.
func (c *Consumer) NackID(id pulsar.MessageID) {
	if err := checkID(id); err != nil {
		c.failNack(err)
		return
	}
	names := []ledger.Name{{ID: id}}
	if id.BatchIdx() < 0 {
		if of, ok := c.ledger.HadOf(names[0]); ok {
			names = of
		}
	}
	for _, n := range names {
		c.failNack(c.nack(n, nil, nil, nil))
	}
}

// failNack reports what a nack cannot return. After Close the broker sends the message again in any case.
func (c *Consumer) failNack(err error) {
	if err != nil && !errors.Is(err, ErrClosed) {
		c.fail("nack", "nack", err)
	}
}

// nackMessage starts the delay of a message, the policy's if delay is nil. reason is what a dead letter says; nil for its default.
func (c *Consumer) nackMessage(msg pulsar.Message, delay *time.Duration, reason error) error {
	n, err := c.nameOf(msg)
	if err != nil {
		return err
	}
	return c.nack(n, msg, delay, reason)
}

// nack starts the delay of a message, the policy's if delay is nil. msg is nil if there is no more than its id.
func (c *Consumer) nack(n ledger.Name, msg pulsar.Message, delay *time.Duration, reason error) error {
	return c.nackAs(n, msg, delay, reason, ledger.Failed)
}

// nackAs is nack for a message that failed, or is snoozed.
func (c *Consumer) nackAs(n ledger.Name, msg pulsar.Message, delay *time.Duration, reason error, why ledger.Why) error {
	if !topicname.IsPersistent(n.Topic) {
		return nil
	}
	d, current, known := c.ledger.Find(n)
	if !known {
		if !isPulsarID(n.ID) || n.ID.BatchIdx() >= maxForeignIndex || n.ID.BatchSize() > maxForeignIndex {
			return foreign(n.ID)
		}
		count, topic := uint32(0), n.Topic
		if msg != nil {
			count, topic = countOf(msg), topicOf(msg)
		}
		c.ledger.Adopt(n, topic, c.current(), count)
		d, current, _ = c.ledger.Find(n)
	}
	if c.life.ended.Err() != nil {
		return ErrClosed
	}
	if !current { // a stale nack changes nothing
		return nil
	}
	if msg != nil && d.Message == nil {
		d.Message = c.received(msg)
	}
	c.attempts.count(n.Topic, &d)
	if why == ledger.Failed && d.Message != nil && c.ledger.IsLast(d.Count) {
		c.giveUp(d, c.nackDelay(d.Count), ledger.Leaving, reason)
		return nil
	}
	if delay == nil {
		policy := c.nackDelay(d.Count)
		delay = &policy
	}
	if c.settings.outlivesTTL(d.Message, *delay) {
		c.giveUp(d, min(*delay, time.Minute), ledger.Leaving, &ttlError{*delay, c.settings.ttl, reason})
		return nil
	}
	if from := c.settings.retryFrom; msg != nil && from > 0 && *delay >= from {
		c.move(d, *delay, why == ledger.Snoozed)
		return nil
	}
	if msg == nil && len(c.hooks.of) > 0 { // interceptors may have changed what is kept: of an id the broker's is to come, as upstream
		why = ledger.Unreadable
	}
	if s, had, kept := c.ledger.Nack(d, *delay, d.Message, why); had {
		if !kept && msg != nil {
			c.warnOfLimit(s.Topic, s.ID)
		}
		failed, outcome := s, Nacked
		if why == ledger.Snoozed {
			failed.Attempts--
			outcome = Snoozed
		}
		c.fails(&failed, *delay, reason)
		c.nacked(s, msg, outcome, *delay)
	}
	return nil
}

// warnOfLimit logs, once, that a message does not fit the memory limit where Wrap cannot say how late it comes.
func (c *Consumer) warnOfLimit(topic string, id pulsar.MessageID) {
	if c.wrapped && c.settings.source != FromBroker {
		c.limitExceeded.Do(func() {
			c.log(slog.LevelWarn, "a nacked message does not fit the memory limit, and comes late, by up to 4/3 of the wrapped consumer's "+
				"NackRedeliveryDelay: raise WithMemoryLimit, or use SubscribeWith", "topic", topic, "message", id)
		})
	}
}

// maxForeignIndex is more than a batch has messages. An entry that is not known has to have room for them.
const maxForeignIndex = 1 << 16

// InProgress restarts the ack timeout of a message that the application is still working on. Without WithAckTimeout, and for a message of a
// non-persistent topic, it does nothing and returns nil. Else it returns ErrNotInFlight if the application no longer has the message,
// ErrClosed after the Consumer was closed or gave up reconnecting, and an error for a nil message.
func (c *Consumer) InProgress(msg pulsar.Message) error {
	n, err := c.nameOf(msg)
	if err != nil {
		return err
	}
	switch {
	case c.settings.ackTimeout == nil || c.ledger.Touch(n) || !topicname.IsPersistent(n.Topic):
		return nil
	case c.life.ended.Err() != nil:
		return ErrClosed
	}
	return fmt.Errorf("%w: %v", ErrNotInFlight, n.ID)
}

// nackDelay returns what the nack policy says about a redelivery count.
func (c *Consumer) nackDelay(count uint32) time.Duration {
	return c.delay(c.settings.nackBackoff, count)
}

// withDelay calls then with what policy says about a redelivery count, or with the default if the policy ends the goroutine.
func (c *Consumer) withDelay(policy backoff.RedeliveryBackoff, count uint32, then func(time.Duration)) {
	d := nack.DefaultDelay
	defer func() { then(d) }()
	d = c.delay(policy, count)
}

// delay returns what policy says about a redelivery count. A policy is the caller's code: it is not called under a lock,
// and its panic does not end a program in a goroutine that nobody can recover.
func (c *Consumer) delay(policy backoff.RedeliveryBackoff, count uint32) (d time.Duration) {
	defer func() {
		if r := recover(); r != nil {
			c.fail("policy", "a policy", fmt.Errorf("panic at redelivery count %d: %v", count, r), "delay", nack.DefaultDelay)
			d = nack.DefaultDelay
		}
	}()
	return policy.Next(count)
}
