package redelivery

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/partition"
)

// AckIDList acknowledges several messages, each as Ack does. The error may be a pulsar.AckError. It maps each id that
// was not acknowledged to its error: the broker's error with AckWithResponse, ErrClosed after Close. With
// AckWithResponse, messages that the Consumer does not know are acknowledged one at a time, each after the broker's
// answer to the previous one.
func (c *Consumer) AckIDList(ids []pulsar.MessageID) error {
	names := make([]name, len(ids))
	for i, id := range ids {
		n, err := nameOfID(id)
		if err == nil && !reflect.ValueOf(id).Comparable() { // AckError has ids as keys
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
		mine := slices.Clone(list) // ackList may go on after acknowledge has returned
		ended := c.acknowledge(func() error { c.ackList(mine, consumer); return nil })
		if ended == nil {
			copy(list, mine)
		}
		for i := range list {
			a := &list[i]
			if ended != nil {
				a.err = ackOnClosed{ended}
			}
			if a.err != nil {
				failed[a.object] = a.err
			}
			c.endAck(&a.name, &a.Ack, a.err, partition.Done)
		}
	}
	c.calls.leave()
	for _, list := range lists {
		for i := range list {
			if a := &list[i]; !a.Late {
				c.reportAck(&a.name, nil, &a.Delivery, began, a.err)
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

// listedAck is one message of a call of AckIDList.
type listedAck struct {
	name
	partition.Ack // without an Object if the group does not know the message
	err           error
}

// ackLists begins to settle messages, and makes a list for each consumer of pulsar-client-go that acknowledges some of
// them. It puts the errors of refused ids into failed.
func (c *Consumer) ackLists(names []name, failed pulsar.AckError) map[pulsar.Consumer][]listedAck {
	lists := map[pulsar.Consumer][]listedAck{}
	c.mu.Lock()
	for _, n := range names {
		a := listedAck{name: n}
		err := c.beginAck(&n, &a.Ack)
		switch consumer := c.sourceOf(&a.Delivery); {
		case err != nil:
			failed[n.object] = err
		case !a.Late:
			lists[consumer] = append(lists[consumer], a)
		}
	}
	c.unlock()
	return lists
}

// ackList acknowledges the messages of a list. AckIDList of pulsar-client-go reports failures only of ids that it
// knows, and only if it waits for the broker's answers. If it does not wait, it does the same as AckID for each
// message, and hides the errors. After Wrap the Consumer does not know whether AckIDList waits.
func (c *Consumer) ackList(list []listedAck, consumer pulsar.Consumer) {
	var ids []pulsar.MessageID
	var together []*listedAck
	for i := range list {
		a := &list[i]
		if id := ackID(&a.name, &a.Ack); a.Object != nil && (c.settings.opts.AckWithResponse || c.settings.isWrapped) {
			ids, together = append(ids, id), append(together, a)
		} else {
			a.err = consumer.AckID(id)
		}
	}
	if len(ids) == 0 {
		return
	}
	err := consumer.AckIDList(ids)
	var errs pulsar.AckError
	hasErrs := errors.As(err, &errs)
	for i, a := range together {
		a.err = err
		if hasErrs {
			a.err = errs[ids[i]]
		}
	}
}
