package redelivery

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/partition"
)

// AckIDList acknowledges several messages, each as Ack does. The error may be a pulsar.AckError. It maps each id that
// was not acknowledged to its error: the broker's error with AckWithResponse, ErrClosed after Close.
func (c *Consumer) AckIDList(ids []pulsar.MessageID) error {
	names := make([]name, len(ids))
	for i, id := range ids {
		n, err := nameOfID(id)
		if err == nil && !reflect.TypeOf(id).Comparable() { // AckError has ids as keys
			err = fmt.Errorf("redelivery: message id is a %T, only comparable ids are accepted, such as those of "+
				"pulsar-client-go", id)
		}
		if err != nil {
			return fmt.Errorf("%w (%d of %d)", err, i+1, len(ids))
		}
		names[i] = n
	}
	failed := pulsar.AckError{}
	if err := c.enter(); err != nil {
		if len(ids) == 0 {
			return err
		}
		for _, id := range ids {
			failed[id] = ackOnClosed{err}
		}
		return failed
	}
	began, lists := c.now(), c.ackLists(names, failed)
	for consumer, list := range lists {
		_ = c.acknowledge(func() error { list.ack(consumer); return nil })
		for i := range list.acks {
			a := &list.acks[i]
			if a.err != nil {
				failed[a.object] = a.err
			}
			switch {
			case a.Object != nil:
				c.endAck(&a.Ack, a.err, partition.Done)
			case a.err == nil && a.object.BatchIdx() < 0:
				c.settleEntry(a.ID)
			}
		}
	}
	c.calls.leave()
	for _, list := range lists {
		for i := range list.acks {
			if a := &list.acks[i]; !a.Late {
				c.acked(&a.name, nil, &a.Delivery, began, a.err)
			}
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return failed
}

// ackOnClosed wraps an error, and gives ErrClosed the text that pulsar-client-go's error has.
type ackOnClosed struct{ error }

func (e ackOnClosed) Error() string {
	if errors.Is(e.error, ErrClosed) {
		return "consumer state is closed"
	}
	return e.error.Error()
}

func (e ackOnClosed) Unwrap() error { return e.error }

// ackList has those messages of a call of AckIDList that one consumer of pulsar-client-go acknowledges.
type ackList struct{ acks []listedAck }

type listedAck struct {
	name
	partition.Ack // without an Object if the group does not know the message
	err           error
}

// ackLists begins to settle messages, and makes a list for each consumer that acknowledges some of them. It puts the
// errors of refused ids into failed.
func (c *Consumer) ackLists(names []name, failed pulsar.AckError) map[pulsar.Consumer]*ackList {
	lists := map[pulsar.Consumer]*ackList{}
	c.mu.Lock()
	for _, n := range names {
		var a partition.Ack
		standing, err := c.group.BeginAck(n.ID, &a)
		switch {
		case err != nil:
			failed[n.object] = err
			continue
		case standing == partition.AlreadySettled:
			continue
		}
		consumer := c.sourceOf(&a.Delivery)
		if lists[consumer] == nil {
			lists[consumer] = &ackList{}
		}
		lists[consumer].acks = append(lists[consumer].acks, listedAck{n, a, nil})
	}
	c.unlock()
	return lists
}

// ack acknowledges all messages of a list.
func (l *ackList) ack(consumer pulsar.Consumer) {
	ids := make([]pulsar.MessageID, len(l.acks))
	for i, a := range l.acks {
		ids[i] = a.object
		if a.Object != nil {
			ids[i] = ackID(&a.Ack)
		}
	}
	err := consumer.AckIDList(ids)
	var some pulsar.AckError
	isSome := errors.As(err, &some)
	for i, id := range ids {
		l.acks[i].err = err
		if isSome {
			l.acks[i].err = some[id]
		}
	}
}
