package redelivery

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// AckIDList acknowledges several messages, each as Ack does. The error may be a pulsar.AckError. It maps each id that was not
// acknowledged to its error: the broker's error with AckWithResponse, ErrClosed after Close.
func (c *Consumer) AckIDList(ids []pulsar.MessageID) error {
	for i, id := range ids {
		err := checkID(id)
		if err == nil && !reflect.ValueOf(id).Comparable() { // as keys of an AckError are
			err = fmt.Errorf("redelivery: message id is a %T, want one that can be compared", id)
		}
		if err != nil {
			return fmt.Errorf("%w (%d of %d)", err, i+1, len(ids))
		}
	}
	if err := c.enter(); err != nil {
		return notAcked(ids, err)
	}
	lists := map[pulsar.Consumer]*ackList{}
	began := c.now()
	if c.observer.Settled != nil {
		defer func() { c.ackedLists(began, lists) }()
	}
	defer c.calls.Leave()
	var settling []pulsar.MessageID
	for _, id := range ids {
		consumer, s := c.current(), ledger.Settling{ToAck: id}
		switch c.ledger.Settle(ledger.Name{ID: id}, &s) {
		case ledger.Unsettled, ledger.Busy:
			consumer, settling = s.Consumer, append(settling, s.ToAck)
		case ledger.Settled:
			c.acked(began, ledger.Name{}, nil, &s, nil)
			continue
		default: // unknown
		}
		if lists[consumer] == nil {
			lists[consumer] = &ackList{}
		}
		lists[consumer].acks = append(lists[consumer].acks, listedAck{id, s, errPanicked})
	}
	defer c.hooks.postpone(settling...)()
	defer func() {
		for _, l := range lists { // those that a panic left
			l.finish(c)
		}
	}()
	failed := pulsar.AckError{}
	for consumer, l := range lists {
		c.ackList(consumer, l)
		for _, a := range l.acks {
			if a.err != nil {
				failed[a.given] = a.err
			}
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return failed
}

// notAcked is the error of AckIDList if nothing can be acknowledged.
func notAcked(ids []pulsar.MessageID, err error) error {
	if len(ids) == 0 {
		return err
	}
	if errors.Is(err, ErrClosed) {
		err = ackOnClosed{}
	}
	failed := pulsar.AckError{}
	for _, id := range ids {
		failed[id] = err
	}
	return failed
}

// ackOnClosed is ErrClosed in the words of upstream.
type ackOnClosed struct{}

func (ackOnClosed) Error() string { return "consumer state is closed" }
func (ackOnClosed) Unwrap() error { return ErrClosed }

// ackList has the messages of AckIDList that are of one consumer.
type ackList struct {
	acks     []listedAck
	finished bool
}

type listedAck struct {
	given    pulsar.MessageID
	settling ledger.Settling // without a Consumer if the ledger does not know the message
	err      error
}

// ackList acknowledges messages of one consumer together.
func (c *Consumer) ackList(consumer pulsar.Consumer, l *ackList) {
	var ids []pulsar.MessageID
	for _, a := range l.acks {
		ids = append(ids, a.settling.ToAck)
	}
	err := consumer.AckIDList(ids)
	var some pulsar.AckError
	isSome := errors.As(err, &some)
	for i, id := range ids {
		if l.acks[i].err = err; isSome {
			l.acks[i].err = some[id]
		}
	}
	l.finish(c)
}

// finish ends the settlings, unless it has done so before.
func (l *ackList) finish(x *Consumer) {
	if l.finished {
		return
	}
	l.finished = true
	for i := range l.acks {
		if a := &l.acks[i]; a.settling.Consumer != nil {
			x.finishSettling(&a.settling, a.err, pulsar.Consumer.AckID)
		} else if a.err == nil {
			x.ledger.SettleWhole(ledger.Name{ID: a.given})
		}
	}
}
