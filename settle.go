package redelivery

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/delivery"
	"github.com/pulsar-redelivery/redelivery/nack"
)

// Ack acknowledges a message. It is final: the message is not handed out again, unless Ack returns an error. A message
// that waits for its redelivery may still be acknowledged.
func (c *Consumer) Ack(msg pulsar.Message) error {
	id, err := idOf(msg)
	if err != nil {
		return err
	}
	return c.settle(id, pulsar.Consumer.AckID)
}

// AckID is Ack by message id.
func (c *Consumer) AckID(id pulsar.MessageID) error {
	if err := checkID(id); err != nil {
		return err
	}
	return c.settle(id, pulsar.Consumer.AckID)
}

// AckWithTxn acknowledges a message in a transaction.
func (c *Consumer) AckWithTxn(msg pulsar.Message, txn pulsar.Transaction) error {
	id, err := idOf(msg)
	if err != nil {
		return err
	}
	if txn == nil {
		return errors.New("redelivery: transaction is nil, want a pulsar.Transaction")
	}
	return c.settle(id, func(consumer pulsar.Consumer, id pulsar.MessageID) error {
		return consumer.AckWithTxn(identified{msg, id, msg.RedeliveryCount()}, txn)
	})
}

// identified is a message under the id of its newest delivery and with the Consumer's count.
type identified struct {
	pulsar.Message
	id    pulsar.MessageID
	count uint32
}

func (m identified) ID() pulsar.MessageID    { return m.id }
func (m identified) RedeliveryCount() uint32 { return m.count }

// settle takes a message out of redelivery by acknowledging its newest delivery: what was acknowledged of an older one
// does not count towards a batch.
func (c *Consumer) settle(id pulsar.MessageID, ack func(pulsar.Consumer, pulsar.MessageID) error) error {
	c.mu.Lock()
	s, ok := c.table.Settle(id)
	known := ok || c.table.Knows(id)
	c.mu.Unlock()
	if !ok {
		if known {
			return nil // settled before
		}
		return ack(c.inner, id)
	}
	err := ack(s.Consumer, s.ID)
	if again := c.settled(s, err); again != nil {
		return ack(s.Consumer, again)
	}
	return err
}

// settled ends what Table.Settle began. It returns the id of a newer delivery, if one came meanwhile.
func (c *Consumer) settled(s delivery.Settling, err error) (again pulsar.MessageID) {
	c.mu.Lock()
	o := c.table.Settled(s, err)
	if err == nil {
		c.untrack(s.Key, s.Held)
	}
	c.forget()
	wake := c.table.HasNext()
	c.mu.Unlock()
	if wake {
		c.nudge()
	}
	if o.Due {
		c.due([]delivery.Key{s.Key})
	}
	return o.Again
}

// AckIDList acknowledges several messages. With AckWithResponse the error may be a pulsar.AckError, which has the ids that
// were not acknowledged, as they were given here.
func (c *Consumer) AckIDList(ids []pulsar.MessageID) error {
	for i, id := range ids {
		if err := checkID(id); err != nil {
			return fmt.Errorf("%w (%d of %d)", err, i+1, len(ids))
		}
	}
	type list struct {
		given, newest []pulsar.MessageID
		settling      []delivery.Settling
	}
	lists := map[pulsar.Consumer]*list{}
	listOf := func(consumer pulsar.Consumer) *list {
		if lists[consumer] == nil {
			lists[consumer] = &list{}
		}
		return lists[consumer]
	}
	c.mu.Lock()
	for _, id := range ids {
		s, ok := c.table.Settle(id)
		switch {
		case ok:
			l := listOf(s.Consumer)
			l.given, l.newest, l.settling = append(l.given, id), append(l.newest, s.ID), append(l.settling, s)
		case !c.table.Knows(id):
			l := listOf(c.inner)
			l.given, l.newest, l.settling = append(l.given, id), append(l.newest, id), append(l.settling, delivery.Settling{})
		}
	}
	c.mu.Unlock()

	failed := pulsar.AckError{}
	for consumer, l := range lists {
		err := consumer.AckIDList(l.newest)
		var some pulsar.AckError
		isSome := errors.As(err, &some)
		var again []pulsar.MessageID
		for i, s := range l.settling {
			failure := err
			if isSome {
				failure = some[l.newest[i]]
			}
			if failure != nil {
				failed[l.given[i]] = failure
			}
			if s.ID == nil {
				continue
			}
			if newer := c.settled(s, failure); newer != nil {
				again = append(again, newer)
			}
		}
		if len(again) > 0 {
			if err := consumer.AckIDList(again); err != nil {
				c.fail("acknowledging a newer delivery", err)
			}
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return failed
}

// AckCumulative acknowledges all messages of a partition up to and including this one.
func (c *Consumer) AckCumulative(msg pulsar.Message) error {
	id, err := idOf(msg)
	if err != nil {
		return err
	}
	return c.ackCumulative(id)
}

// AckIDCumulative is AckCumulative by message id.
func (c *Consumer) AckIDCumulative(id pulsar.MessageID) error {
	if err := checkID(id); err != nil {
		return err
	}
	return c.ackCumulative(id)
}

func (c *Consumer) ackCumulative(id pulsar.MessageID) error {
	c.mu.Lock()
	consumer, newest := c.table.Newest(id)
	c.mu.Unlock()
	if consumer == nil {
		consumer = c.inner
	}
	if err := consumer.AckIDCumulative(newest); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range c.table.SettleTo(id) {
		c.untrack(key, true)
		c.untrack(key, false)
	}
	c.forget()
	return nil
}

// untrack ends the measuring of a message that the application held, or that waited. The caller holds mu.
func (c *Consumer) untrack(key delivery.Key, held bool) {
	if !held {
		c.nacks.Untrack(key)
	} else if c.timeouts != nil {
		c.timeouts.Untrack(key)
	}
}

// forget has the table reminded of what it only remembers for a while. The caller holds mu.
func (c *Consumer) forget() {
	for _, key := range c.table.Forget {
		c.nacks.TrackFor(key, delivery.Remember)
	}
	c.table.Forget = c.table.Forget[:0]
}

// Nack tells that the application failed on a message: it comes back when the nack policy's delay for its redelivery count
// is over (PIP-106). A second nack changes nothing, nor does one of an earlier delivery; until the message is back it may
// still be acknowledged. A nil or foreign message is logged and counted in Stats.
func (c *Consumer) Nack(msg pulsar.Message) {
	if err := c.nackMessage(msg, nil); err != nil {
		c.fail("nack", err)
	}
}

// NackID is Nack by message id. Unlike upstream's it goes by the policy too. An id that this Consumer did not hand out, or
// settled, counts as one of a message that was not redelivered yet.
func (c *Consumer) NackID(id pulsar.MessageID) {
	if err := c.nackID(id, nil, nil); err != nil {
		c.fail("nack", err)
	}
}

// NackWithDelay is Nack with a delay in place of the policy's, for this time. A negative delay counts as 0. It returns an
// error for a nil or foreign message.
func (c *Consumer) NackWithDelay(msg pulsar.Message, delay time.Duration) error {
	return c.nackMessage(msg, &delay)
}

func (c *Consumer) nackMessage(msg pulsar.Message, delay *time.Duration) error {
	id, err := idOf(msg)
	if err != nil {
		return err
	}
	return c.nackID(id, msg, delay)
}

// nackID nacks a message, which is nil if there is no more than its id.
func (c *Consumer) nackID(id pulsar.MessageID, msg pulsar.Message, delay *time.Duration) error {
	if err := checkID(id); err != nil {
		return err
	}
	count, topic := uint32(0), ""
	if msg != nil {
		count, topic = msg.RedeliveryCount(), msg.Topic()
	}
	c.mu.Lock()
	known := c.table.Knows(id)
	if !known && isPulsarID(id) {
		c.table.Adopt(id, topic, c.inner, count)
		known = true
	}
	c.mu.Unlock()
	if !known {
		return foreign(id)
	}
	c.nack(id, msg, delay)
	return nil
}

// nack starts the delay of a message that the table knows: the policy's, if delay is nil.
func (c *Consumer) nack(id pulsar.MessageID, msg pulsar.Message, delay *time.Duration) {
	if delay == nil {
		d, ok := c.delay(c.settings.nackBackoff, id)
		if !ok {
			return // settled
		}
		delay = &d
	}
	d := max(0, *delay)
	lead := min(d, c.settings.innerDelay)
	key := delivery.KeyOf(id)
	until := time.Now().Add(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended.Err() != nil || !c.table.Nack(id, until, lead) {
		return
	}
	c.untrack(key, true)
	c.nacks.TrackFor(key, d-lead)
	if msg != nil && c.settings.outlive > 0 && d >= c.settings.outlive {
		c.start(&c.moves, func() { c.outlive(msg, until) })
	}
}

// InProgress tells that the application is still at work on a message: its ack timeout starts anew, as long as it was.
// Without WithAckTimeout it does nothing. It returns ErrNotHeld if the message is no longer the application's, and an
// error for a nil message.
func (c *Consumer) InProgress(msg pulsar.Message) error {
	id, err := idOf(msg)
	if err != nil {
		return err
	}
	if c.timeouts != nil && !c.await(id) {
		return fmt.Errorf("%w: %v", ErrNotHeld, id)
	}
	return nil
}

// ErrNotHeld says that the application no longer has a message: it was settled, nacked, or its ack timeout is over.
var ErrNotHeld = errors.New("redelivery: the message is not with the application: it was settled, nacked or timed out")

// await starts the ack timeout of a message that the application has now, and reports whether it does have it.
func (c *Consumer) await(id pulsar.MessageID) bool {
	d, ok := c.delay(c.settings.ackTimeout, id)
	if !ok {
		return false
	}
	key := delivery.KeyOf(id)
	until := time.Now().Add(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.table.Await(id, until) {
		return false
	}
	c.timeouts.Untrack(key)
	c.timeouts.TrackFor(key, d)
	return true
}

// delay returns what policy says about an unsettled message; ok is false if there is none. A policy is the caller's code:
// it is not called under a lock, and its panic does not end a program in a goroutine that nobody can recover.
func (c *Consumer) delay(policy backoff.RedeliveryBackoff, id pulsar.MessageID) (d time.Duration, ok bool) {
	count, ok := c.count(id)
	if !ok {
		return 0, false
	}
	defer func() {
		if r := recover(); r != nil {
			c.fail("policy", fmt.Errorf("panic at redelivery count %d: %v", count, r), "delay", nack.DefaultDelay)
			d = nack.DefaultDelay
		}
	}()
	return policy.Next(count), true
}

// due acts for messages whose delay or ack timeout is over, or whose request was not answered in time.
func (c *Consumer) due(keys []delivery.Key) {
	var asks []delivery.Action
	now := time.Now()
	c.mu.Lock()
	for _, key := range keys {
		a := c.table.Due(key, now)
		if a.Again > 0 {
			c.nacks.TrackFor(key, a.Again)
		}
		if a.Ask != nil {
			asks = append(asks, a)
			c.lastAsk = now
		}
	}
	wake := c.table.HasNext()
	c.mu.Unlock()
	for _, a := range asks {
		a.Ask.NackID(a.ID)
	}
	if wake {
		c.nudge()
	}
}

func idOf(msg pulsar.Message) (id pulsar.MessageID, err error) {
	if msg == nil {
		return nil, errors.New("redelivery: message is nil, want one that was received")
	}
	defer func() {
		if r := recover(); r != nil {
			id, err = nil, fmt.Errorf("redelivery: message is an empty %T, want one that was received", msg)
		}
	}()
	id = msg.ID()
	return id, checkID(id)
}

func checkID(id pulsar.MessageID) (err error) {
	if id == nil {
		return errors.New("redelivery: message id is nil, want that of a message that was received")
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("redelivery: message id is an empty %T, want that of a message that was received", id)
		}
	}()
	delivery.KeyOf(id)
	return nil
}

// isPulsarID reports whether id is one of upstream's: it drops others.
func isPulsarID(id pulsar.MessageID) bool {
	t := reflect.TypeOf(id)
	return t.Kind() == reflect.Pointer && t.Elem().PkgPath() == reflect.TypeFor[pulsar.ConsumerOptions]().PkgPath()
}

func foreign(id pulsar.MessageID) error {
	return fmt.Errorf("redelivery: message id %v is a %T, want one of pulsar-client-go's", id, id)
}
