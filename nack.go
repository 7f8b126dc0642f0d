package redelivery

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/partition"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/internal/upstream"
)

// How a nack works: Nack and its variants end in decideNack, which asks the policy for the delay (nackDelay). Then the
// message
//   - becomes a dead letter (makeDeadLetter), if this was its last delivery, or if it would expire before its delay
//     is over,
//   - goes to the retry topic (moveToRetryTopic), if its delay is at least that of WithNackRetryTopic,
//   - or waits in the group: partition.Group.Nack.
//
// When the delay is over, the alarm calls alarmOver (group.go), which calls Group.Advance in unlockAndAct.
// Group.delayOver (internal/partition/due.go) makes the message ready, so that Receive gets it from Group.Take.
// Group.delayOver requests the message from the broker instead if the body was not kept, the message is stale, or
// another consumer may do better. Then the message comes through Group.Arrive.

// Nack redelivers a message that the application could not process, after the delay that the nack policy gives for
// its redelivery count (PIP-106). On the last delivery by MaxDeliveries (WithDeadLetterPolicy, or DLQ) the message
// becomes a dead letter at once. With WithNackRetryTopic a message with a long delay goes to the retry topic, and
// with WithDeadBeforeTTL one that would expire before its delay is over becomes a dead letter. A second nack changes
// nothing, and neither does a nack of an earlier delivery. Until the message comes back, it may still be
// acknowledged. A message of a non-persistent topic does not come back. A nil or foreign message is logged and
// counted in Stats.
func (c *Consumer) Nack(msg pulsar.Message) {
	c.failNack(c.nackMessage(msg, nackOptions{}))
}

// NackWithReason is Nack with a reason. On the last delivery the message becomes a dead letter at once, and the dead
// letter carries the reason. If reason is nil, the dead letter says how often the message was delivered. NackWithReason
// returns ErrClosed after Close, and an error for a nil or foreign message.
func (c *Consumer) NackWithReason(msg pulsar.Message, reason error) error {
	return c.nackMessage(msg, nackOptions{reason: reason})
}

// NackWithDelay is Nack with a delay that replaces the policy's this once. A negative delay counts as 0. It returns
// ErrClosed after Close, and an error for a nil or foreign message.
func (c *Consumer) NackWithDelay(msg pulsar.Message, delay time.Duration) error {
	return c.nackMessage(msg, nackOptions{delay: &delay})
}

// NackWithDelayAndReason is NackWithDelay with the reason of NackWithReason.
func (c *Consumer) NackWithDelayAndReason(msg pulsar.Message, delay time.Duration, reason error) error {
	return c.nackMessage(msg, nackOptions{delay: &delay, reason: reason})
}

// Snooze is NackWithDelay, but this delivery does not count: the redelivery count stays the same, and so do the
// policy's next delay and the deliveries left by MaxDeliveries. Use it if the message cannot be processed yet and
// nothing failed.
//
// The message waits in memory, whatever WithRedeliveryFrom says, and stays with this Consumer: on Key_Shared its key
// does not move to a consumer that joins. A message that does not fit the memory limit comes from the broker when it is
// due; on Shared and Key_Shared the broker counts this as a redelivery, also toward MaxDeliveries. After a restart the
// broker sends the message at once. With WithNackRetryTopic a message with a long delay waits in the retry topic
// instead, and survives a restart; the broker does not count it as unacknowledged.
func (c *Consumer) Snooze(msg pulsar.Message, delay time.Duration) error {
	return c.nackMessage(msg, nackOptions{delay: &delay, snoozed: true})
}

// NackID nacks a message by its id, as Nack does. Unlike NackID of pulsar-client-go, it follows the policy. The id of a
// whole batch has the BatchIdx -1, and nacks all messages of the batch that the application has. If this Consumer did
// not deliver the message, or has settled it, the redelivery count starts at 0. For an unknown message of a batch,
// whose id was made from bytes or numbers, the Consumer asks the broker for the whole batch after the delay. A message
// that did not fit the memory limit comes from the broker when it is due. If it has no delivery left, it becomes a dead
// letter then, since only then does the Consumer have the payload.
func (c *Consumer) NackID(id pulsar.MessageID) {
	n, err := nameOfID(id)
	var batch []partition.ID
	if err == nil && n.Index < 0 {
		now := c.lock()
		batch, err = c.group.HeldOf(n.ID)
		c.unlockAndAct(now)
	}
	if err != nil {
		c.failNack(err)
		return
	}
	if len(batch) == 0 {
		batch = []partition.ID{n.ID}
	}
	for _, n.ID = range batch {
		c.failNack(c.nack(n, nil, nackOptions{}))
	}
}

// failNack reports an error that Nack or NackID cannot return. It ignores ErrClosed: after Close the broker sends the
// message again in any case.
func (c *Consumer) failNack(err error) {
	if err != nil && !errors.Is(err, ErrClosed) {
		c.reportFailure("nack", "nack", err)
	}
}

// nackOptions says how a message is nacked.
type nackOptions struct {
	delay   *time.Duration // nil for the policy's
	reason  error          // why the message failed; nil if unknown
	snoozed bool           // this delivery does not count
}

func (c *Consumer) nackMessage(msg pulsar.Message, how nackOptions) error {
	n, err := c.nameOf(msg)
	if err != nil {
		return err
	}
	return c.nack(n, msg, how)
}

// nack lets a message wait in the group, or publishes it to the dead letter topic or the retry topic. msg is nil if
// only its id is known.
func (c *Consumer) nack(n name, msg pulsar.Message, how nackOptions) error {
	if c.isOver() {
		return ErrClosed
	}
	if !topicname.IsPersistent(n.Topic) {
		return nil
	}
	i, isOpen, err := c.find(&n)
	switch {
	case err != nil:
		return err
	// An earlier delivery, or a settled message. The broker is still asked for a settled message that is nacked by id.
	case isOpen && !i.Current, i.State == partition.Settled && n.isOwn:
		return nil
	case !isOpen && (!upstream.IsMessageID(n.object) || max(n.object.BatchIdx(), n.object.BatchSize()) > largestBatch):
		return foreign(n.object)
	}
	d := i.Delivery
	if !isOpen && msg != nil {
		d.ID, d.Object = idOf(cmp.Or(n.Topic, orZero(msg.Topic)), n.object), n.object
		d.Count = orZero(msg.RedeliveryCount)
	}
	if d.Body == nil {
		d.Body = n.body
	}
	c.raiseCount(&d)
	return c.decideNack(n, msg, d, isOpen, how)
}

// decideNack decides what happens to a nacked message: see the top of this file. d is the message's newest delivery.
// isOpen says that the group has the message, and has not settled it.
func (c *Consumer) decideNack(n name, msg pulsar.Message, d partition.Delivery, isOpen bool, how nackOptions) error {
	body, _ := d.Body.(pulsar.Message)
	canMove := isOpen && body != nil // publishing the message needs its body
	if canMove && !how.snoozed && c.isLast(d.Count) {
		c.makeDeadLetter(d, c.nackDelay(d.Count), how.reason, true)
		return nil
	}
	delay := c.nackDelay(d.Count)
	if how.delay != nil {
		delay = *how.delay
	}
	if ttl := c.settings.DeadBeforeTTL; canMove && ttl > 0 && publishing.OutlivesTTL(body.PublishTime(), ttl, delay) {
		c.makeDeadLetter(d, min(delay, time.Minute), &ttlError{delay, ttl, how.reason}, true)
		return nil
	}
	if from := c.settings.NackRetryTopic; canMove && msg != nil && from > 0 && delay >= from {
		c.moveToRetryTopic(d, delay, how)
		return nil
	}
	if !isOpen && upstream.IsBareOfBatch(n.object) { // an acknowledgement by this id would be one of the whole batch
		c.mu.Lock()
		newest, _ := c.group.Upto(n.ID)
		c.mu.Unlock()
		c.requestLater(c.sourceOf(&newest), n.object, delay)
		return nil
	}
	f := partition.Failure{ID: n.ID, Hand: n.hand, Delay: delay, Uncounted: how.snoozed}
	if body != nil {
		f.Copy = copyOf(body)
	}
	if !isOpen {
		f.Copy.ID, f.Copy.Source, f.Copy.Object = d.ID, c.current(), n.object
		f.Copy.Total, f.Copy.Count = n.object.BatchSize(), d.Count
	}
	now := c.lock()
	nacked, changed, err := c.group.Nack(now, f)
	i, isNowOpen, _ := c.group.Find(f.ID, partition.AnyHand)
	c.unlockAndAct(now)
	switch {
	case err != nil:
		return err
	case !changed && !isOpen && !isNowOpen: // settled, or unknown to the group; the broker may know it
		c.requestLater(c.current(), n.object, delay)
	case changed:
		if msg != nil && i.Body == nil { // the group did not keep the body
			c.warnOfLimit(nacked.ID.Topic, n.object)
		}
		c.recordFailure(&nacked, delay, how)
		c.reportNack(nacked, msg, delay, how)
	}
	return nil
}

// largestBatch is larger than any batch. The id of an unknown message with a larger index or batch size is refused,
// since the group would make room for so many messages.
const largestBatch = 1 << 16

// requestLater asks the broker for a message after the delay.
func (c *Consumer) requestLater(source pulsar.Consumer, id pulsar.MessageID, delay time.Duration) {
	time.AfterFunc(max(0, delay), func() {
		c.request(partition.Request{Source: source, ID: id})
	})
}

// warnOfLimit logs once that a nacked message of a wrapped consumer does not fit the memory limit, and comes late.
func (c *Consumer) warnOfLimit(topic string, id pulsar.MessageID) {
	if c.settings.isWrapped && c.settings.Source != FromBroker {
		c.limitExceeded.Do(func() {
			c.log(slog.LevelWarn, "a nacked message does not fit the memory limit, and comes late, by up to 4/3 of "+
				"the wrapped consumer's NackRedeliveryDelay: raise WithMemoryLimit, or use SubscribeWith",
				"topic", topic, "message", id)
		})
	}
}

// InProgress restarts the ack timeout of a message that the application is still working on. Without WithAckTimeout,
// and for a message of a non-persistent topic, it does nothing and returns nil. Else it returns ErrNotInFlight if the
// application no longer has the message, ErrClosed after the Consumer was closed or gave up reconnecting, and an error
// for a nil message.
func (c *Consumer) InProgress(msg pulsar.Message) error {
	n, err := c.nameOf(msg)
	switch {
	case err != nil:
		return err
	case c.settings.ackTimeout == nil || !topicname.IsPersistent(n.Topic):
		return nil
	case c.isOver():
		return ErrClosed
	}
	now := c.lock()
	has, err := c.group.Touch(now, n.ID, n.hand)
	c.unlockAndAct(now)
	if err == nil && !has {
		err = fmt.Errorf("%w: %v", ErrNotInFlight, n.object)
	}
	return err
}

// RedeliverNow ends the delays of all messages that wait in this Consumer (nacked, snoozed, and retries that came
// early), and returns their number. They are delivered as soon as the application receives. Call it when the cause of
// the failures is mended. The call itself counts nothing: redelivery counts and later delays of the policy stay the
// same. Ack timeouts go on. Messages that wait at the broker, such as those of the retry topic, keep waiting, and so do
// those that a Worker with WithKeyOrder keeps. With WithAttemptLog a message that goes to another consumer (FromAuto)
// waits there for the rest of its delay. After Close it returns 0.
func (c *Consumer) RedeliverNow() (n int) {
	if c.isOver() {
		return 0
	}
	now := c.lock()
	n = c.group.RedeliverNow(now)
	c.unlockAndAct(now)
	return n
}

// reportTimeout logs a failure for a message whose ack timeout is over, and reports it to observers.
func (c *Consumer) reportTimeout(d partition.Delivery) {
	c.recordFailure(&d, 0, nackOptions{reason: errTimedOut})
	if c.observer.Settled != nil {
		e := c.settledEvent(&d, nil, TimedOut, c.now())
		c.observerCalls.add(c, func() { c.observer.Settled(e) })
	}
}

var errTimedOut = errors.New("ack timeout")

// reportNack reports to observers that a message waits now.
func (c *Consumer) reportNack(d partition.Delivery, msg pulsar.Message, delay time.Duration, how nackOptions) {
	if c.observer.Settled == nil {
		return
	}
	outcome := Nacked
	if how.snoozed {
		outcome = Snoozed
	}
	e := c.settledEvent(&d, msg, outcome, c.now())
	e.Delay = max(0, delay)
	c.observer.Settled(e)
}

// nackDelay returns the nack policy's delay for a redelivery count.
func (c *Consumer) nackDelay(count uint32) time.Duration { return c.settings.Nack.Next(count) }

// isLast reports whether the delivery with a redelivery count is a message's last one.
func (c *Consumer) isLast(count uint32) bool {
	return partition.IsLast(count, c.settings.MaxDeliveries)
}
