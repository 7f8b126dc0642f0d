package driver

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"sync/atomic"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/intake"
	"github.com/pulsar-redelivery/redelivery/internal/ledger"
	"github.com/pulsar-redelivery/redelivery/nack"
)

// Receive waits for the next message.
func (x *Driver) Receive(ctx context.Context) (pulsar.Message, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	if x.outlet.fed.Load() {
		return x.receiveFed(ctx)
	}
	var d ledger.Delivery
	if err := x.next(ctx, &d); err != nil {
		return nil, err
	}
	msg := messageOf(&d)
	x.intercept(d, msg)
	if !x.observer.Any {
		x.hold(d)
		return msg, nil
	}
	told := x.deliveredEvent(d, msg)
	x.hold(d)
	x.delivered(told)
	return msg, nil
}

// outlet is the channel that Chan returns, and what feeds it.
type outlet struct {
	ch    chan pulsar.ConsumerMessage
	given bool        // by the application
	fed   atomic.Bool // the feeder was started
}

// receiveFed takes the next message from the channel, as upstream's Receive does.
func (x *Driver) receiveFed(ctx context.Context) (pulsar.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if x.life.ended.Err() == nil {
		select {
		case cm := <-x.outlet.ch:
			return cm.Message, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-x.life.ended.Done():
		}
	}
	return nil, x.receiveError(ctx, intake.ErrClosed)
}

// Chan returns a channel of messages, which the Driver feeds from now on.
func (x *Driver) Chan() <-chan pulsar.ConsumerMessage {
	x.startFeeder()
	return x.outlet.ch
}

func (x *Driver) startFeeder() {
	if x.outlet.fed.CompareAndSwap(false, true) && x.crew.Enter() {
		go x.crewed(x.feed)
	}
}

// feed sends the next message on the channel, and reports false once the Consumer is closed.
func (x *Driver) feed() (more bool) {
	era := x.life.now()
	var d ledger.Delivery
	if err := x.next(x.life.ended, &d); err != nil {
		x.crew.Leave()
		return false
	}
	msg := messageOf(&d)
	if !x.outside(func() { x.intercept(d, msg) }) {
		return false
	}
	told := x.deliveredEvent(d, msg)
	return !x.offer(era, d, msg) || x.outside(func() { x.hold(d); x.delivered(told) })
}

// offer sends a message on the channel, unless it is settled or forgotten before the application takes it.
func (x *Driver) offer(era context.Context, d ledger.Delivery, msg pulsar.Message) (sent bool) {
	var withdrawn <-chan struct{}
	if d.ID != nil {
		var ok bool
		if withdrawn, ok = x.ledger.Offer(d); !ok {
			return false
		}
		defer func() { x.ledger.Offered(d, sent) }()
	}
	select {
	case x.outlet.ch <- pulsar.ConsumerMessage{Consumer: x.outer, Message: msg}:
		return true
	case <-withdrawn:
	case <-era.Done():
	}
	return false
}

// next takes the next message for the application.
func (x *Driver) next(ctx context.Context, d *ledger.Delivery) error {
	if err := ctx.Err(); err != nil && ctx != x.life.ended {
		return err
	}
	for {
		lent, err := x.take(ctx, d)
		switch {
		case err != nil:
			return x.receiveError(ctx, err)
		case !lent:
			return nil
		}
	}
}

// take is next while the caller has the turn, and reports whether somebody wants to borrow that.
func (x *Driver) take(ctx context.Context, d *ledger.Delivery) (lent bool, err error) {
	if err := x.intake.Acquire(ctx); err != nil {
		return false, err
	}
	defer x.intake.Release()
	for x.life.ended.Err() == nil {
		newsTurn := x.cameAgain && !x.ledger.OffersAgain() && x.intake.IsReady() // or messages that always fail would keep what is new waiting
		if x.cameAgain = !newsTurn && x.ledger.Next(d); !x.cameAgain {
			cm, event, err := x.intake.Take(ctx)
			switch {
			case errors.Is(err, intake.ErrUndecryptable):
				x.Fail("receive", "receiving", err)
				continue
			case err != nil:
				if ctx.Err() == nil && !errors.Is(err, intake.ErrClosed) {
					x.life.end()
				}
				return false, err
			case event == intake.Interrupted:
				return true, nil
			case event == intake.Woken:
				continue
			}
			if !x.arrive(cm, d) {
				x.cameAgain = newsTurn // it is still what is new that has its turn
				continue
			}
		}
		if x.hooks.nacksUndecryptable && d.Message.GetEncryptionContext() != nil {
			undecryptable := *d
			x.start(&x.asides, func(context.Context) {
				x.ledger.Nack(undecryptable, x.nackDelay(undecryptable.Count), nil, ledger.Unreadable)
			})
			continue
		}
		if x.publisher.givesUp(d) {
			x.giveUpAside(*d, ledger.GivenUp)
			continue
		}
		return false, nil
	}
	return false, intake.ErrClosed
}

// receiveError returns the inner consumer's own error for a closed consumer, once it is closed. Until then its Receive would
// take messages from under a seek, which hangs then, and keep a zero-queue consumer from being closed.
func (x *Driver) receiveError(ctx context.Context, err error) error {
	if !errors.Is(err, intake.ErrClosed) || ctx == x.life.ended {
		return err
	}
	if x.life.closing.Load() {
		if x.awaitClosed(ctx); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	for {
		if _, err := x.inner.Receive(ctx); err != nil {
			return err
		}
	}
}

// idle acts where nothing came for a second although somebody waited.
func (x *Driver) idle() {
	if unsettled := x.ledger.Idle(); unsettled >= nearLimit && !x.hooks.redeliversAll && !x.tally.warned {
		x.tally.warned = true
		x.Log(slog.LevelWarn, "many messages are unacknowledged, close to the broker's limit, where it stops sending: those that "+
			"wait for redelivery count too", "unacknowledged", nearLimit)
	}
}

// nearLimit is where a warning is due. The broker stops sending at 50,000 unacknowledged messages for each consumer of a
// partition, on Shared and Key_Shared, by default (maxUnackedMessagesPerConsumer).
const nearLimit = 45_000

// arrive enters a message into the ledger and reports whether it goes to the application now.
func (x *Driver) arrive(cm pulsar.ConsumerMessage, d *ledger.Delivery) bool {
	if !isTracked(cm.Message) {
		*d = ledger.Delivery{Consumer: cm.Consumer, Message: cm.Message, Count: cm.RedeliveryCount()}
		return true
	}
	if x.raw.Load() == nil {
		x.raw.Store(reflect.TypeOf(cm.Message))
	}
	var retry ledger.Retry
	if x.publisher.isRetry(cm.Message) {
		retry = retryOf(cm.Message)
	}
	if h := x.hooks; h.nacksUndecryptable && h.lost.Load() && cm.GetEncryptionContext() != nil {
		x.ledger.Received(cm.Topic(), cm.ID()) // upstream calls no interceptor with what it cannot decrypt
	}
	verdict := x.ledger.Arrive(cm, retry, d)
	if verdict == ledger.AckDuplicate {
		x.tally.swallowed.Add(1)
		consumer, n := d.Consumer, ledger.Name{ID: d.ID, Topic: cm.Topic()}
		x.start(&x.swallows, func(context.Context) {
			x.ackAgain("a settled message again", consumer, n, minAckPause)
		})
	}
	x.arrived(cm, verdict)
	return verdict == ledger.Deliver
}

// isTracked reports whether a message can be redelivered. Of non-persistent topics the broker keeps none.
func isTracked(msg pulsar.Message) bool { return !strings.HasPrefix(msg.Topic(), nonPersistent) }

// hold starts the ack timeout of a message that the application has now.
func (x *Driver) hold(d ledger.Delivery) {
	if x.settings.ackTimeout != nil && d.ID != nil {
		timeout := nack.DefaultDelay // if the policy does not return
		defer func() { x.ledger.Hold(d, timeout) }()
		timeout = x.delay(x.settings.ackTimeout, d.Count)
	}
}

// intercept tells the application's interceptors that a message is handed out, and that it was redelivered if the inner
// consumer was not asked for it and knows nothing of that. A panic of theirs loses no message, nor does runtime.Goexit.
func (x *Driver) intercept(d ledger.Delivery, msg pulsar.Message) {
	if len(x.hooks.of) == 0 {
		return
	}
	returned := false
	defer func() {
		if !returned && d.ID != nil { // whoever receives next gets it
			x.ledger.Nack(d, 0, d.Message, ledger.GivenUp)
		}
	}()
	if d.Unasked {
		x.safely(func() { x.hooks.of.OnNegativeAcksSend(x.outer, []pulsar.MessageID{msg.ID()}) })
	}
	x.safely(func() { x.hooks.of.BeforeConsume(pulsar.ConsumerMessage{Consumer: x.outer, Message: msg}) })
	returned = true
}
