package driver

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// AckIDList acknowledges several messages, each as Ack does.
func (x *Driver) AckIDList(ids []pulsar.MessageID) error {
	for i, id := range ids {
		err := checkID(id)
		if err == nil && !reflect.ValueOf(id).Comparable() { // as keys of an AckError are
			err = fmt.Errorf("redelivery: message id is a %T, want one that can be compared", id)
		}
		if err != nil {
			return fmt.Errorf("%w (%d of %d)", err, i+1, len(ids))
		}
	}
	if !x.calls.Enter() {
		return notAcked(ids)
	}
	lists := map[pulsar.Consumer]*ackList{}
	if x.observer.Settled != nil {
		began := x.begin()
		defer func() { x.ackedLists(began, lists) }()
	}
	defer x.calls.Leave()
	var busy []pulsar.MessageID
	list := func(consumer pulsar.Consumer) *ackList {
		if lists[consumer] == nil {
			lists[consumer] = &ackList{}
		}
		return lists[consumer]
	}
	tell := func() {}
	defer func() { tell() }()
	defer func() {
		for _, l := range lists { // those that a panic left
			l.finish(x, errPanicked)
		}
	}()
	var settling []pulsar.MessageID
	for _, id := range ids {
		var s ledger.Settling
		switch x.ledger.TrySettle(ledger.Name{ID: id}, &s) {
		case ledger.Unsettled:
			list(s.Consumer).add(id, s)
			settling = append(settling, s.ID)
		case ledger.Unknown:
			list(x.inner).add(id, ledger.Settling{ID: id})
		case ledger.Busy:
			busy = append(busy, id)
		default: // Settled before
		}
	}
	tell = x.hooks.postpone(settling...)
	failed := pulsar.AckError{}
	for consumer, l := range lists {
		x.ackList(consumer, l)
		for i, err := range l.errs {
			if err != nil {
				failed[l.given[i]] = err
			}
		}
	}
	for _, id := range busy {
		if err := x.AckID(id); err != nil {
			failed[id] = err
		} else {
			delete(failed, id)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return failed
}

// notAcked is the error of AckIDList after Close.
func notAcked(ids []pulsar.MessageID) error {
	if len(ids) == 0 {
		return ErrClosed
	}
	failed := pulsar.AckError{}
	for _, id := range ids {
		failed[id] = ackOnClosed{}
	}
	return failed
}

// ackOnClosed is ErrClosed in the words of upstream.
type ackOnClosed struct{}

func (ackOnClosed) Error() string { return "consumer state is closed" }
func (ackOnClosed) Unwrap() error { return ErrClosed }

// ackList has the messages of AckIDList that are of one consumer.
type ackList struct {
	given     []pulsar.MessageID
	settlings []ledger.Settling // without a Consumer if the ledger does not know the message
	errs      []error
	acked     []acked // for observers
}

type acked struct {
	settling ledger.Settling
	err      error
}

func (l *ackList) add(given pulsar.MessageID, s ledger.Settling) {
	l.given, l.settlings = append(l.given, given), append(l.settlings, s)
}

// ackList acknowledges messages of one consumer together.
func (x *Driver) ackList(consumer pulsar.Consumer, l *ackList) {
	var ids []pulsar.MessageID
	for _, s := range l.settlings {
		ids = append(ids, s.ID)
	}
	err, errs := consumer.AckIDList(ids), make([]error, len(ids))
	var some pulsar.AckError
	isSome := errors.As(err, &some)
	for i, id := range ids {
		if errs[i] = err; isSome {
			errs[i] = some[id]
		}
	}
	l.errs = errs
	l.finish(x, nil)
}

// finish ends the settlings that have not ended yet, with err where no other error is known.
func (l *ackList) finish(x *Driver, err error) {
	settlings := l.settlings
	l.settlings = nil
	for i := range settlings {
		if settlings[i].Consumer == nil {
			continue
		}
		if l.errs != nil {
			err = l.errs[i]
		}
		x.finishSettling(&settlings[i], err)
		if x.observer.Settled != nil {
			l.acked = append(l.acked, acked{settlings[i], err})
		}
	}
}
