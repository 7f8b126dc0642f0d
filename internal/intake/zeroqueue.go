package intake

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/pulsar-client-go/pulsar"
)

// ErrUndecryptable says that the consumer without a queue panicked, as it does on a message that it cannot decrypt, of which
// it does not tell the id.
var ErrUndecryptable = errors.New("a message cannot be decrypted: it stays at the broker until the consumer reconnects")

var errWoken = errors.New("woken")

// takeWithoutQueue is Take for a consumer that has no channel. While its Receive runs, a helper listens for what ends it; the
// helper has ended when takeWithoutQueue returns, so that it takes nothing which is meant for the next.
func (x *Intake) takeWithoutQueue(ctx context.Context) (cm pulsar.ConsumerMessage, event Event, err error) {
	receiving, cancel := context.WithCancelCause(ctx)
	helper := make(chan struct{})
	woken, lent := false, false
	go func() {
		defer close(helper)
		select {
		case <-x.wake:
			woken = true
		case <-x.turn.lend:
			lent = true
		case <-x.ended:
		case <-receiving.Done():
		}
		cancel(errWoken)
	}()
	msg, err := x.receive(receiving)
	cancel(nil)
	<-helper
	undecryptable := errors.Is(err, ErrUndecryptable)
	if lent && (err == nil || undecryptable) {
		signal(x.turn.lend) // for the next
	}
	switch {
	case err == nil:
		if woken {
			x.Wake()
		}
		return pulsar.ConsumerMessage{Consumer: x.consumer, Message: msg}, Message, nil
	case undecryptable:
		return cm, Woken, err
	case lent:
		x.Release()
		return cm, Lent, nil
	case errors.Is(context.Cause(receiving), errWoken):
		return cm, Woken, nil
	}
	return cm, Woken, err
}

// receive is the consumer's Receive, without its panic on a message that it could not decrypt.
func (x *Intake) receive(ctx context.Context) (msg pulsar.Message, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w (panic: %v)", ErrUndecryptable, r)
		}
	}()
	return x.consumer.Receive(ctx)
}
