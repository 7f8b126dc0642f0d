// Package intake reads the inner consumer: one goroutine at a time, which has the turn, so that messages are entered in the
// order in which they came. Whoever needs the inner consumer for itself, as a seek does, takes the turn by Interrupt.
package intake

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// ErrClosed says that the intake was closed.
var ErrClosed = errors.New("closed")

// Event says what ended a Take.
type Event uint8

const (
	Message     Event = iota
	Woken             // there is something else to look at first
	Interrupted       // somebody wants the turn for something else: Release it
)

// Intake is the only reader of a consumer.
type Intake struct {
	messages <-chan pulsar.ConsumerMessage // nil if the consumer has no queue
	ahead    []pulsar.ConsumerMessage      // taken from messages together: to wake upstream for each takes longer than the message
	next     int                           // the first of ahead that is still here
	receiver receiver
	ended    context.Context
	mayEnd   func() bool
	idle     func(quiet time.Duration)

	turn  turn
	wake  chan struct{} // has one while whoever waits for a message is to look for something else
	start time.Time
	timer *time.Timer
	check atomic.Bool   // a second is over: what is there to look for is whether the consumer has closed itself
	quiet time.Duration // for which somebody has waited since the last message
}

// empty is after how long nothing is left in a consumer's queue that somebody waits for. What was sent to it may be on its way still.
const empty = 20 * time.Millisecond

// New returns an Intake of consumer, which delivers to messages; messages is nil for one without a queue. Up to ahead messages are taken at
// once, or each by itself if it is 0. No more is read once ended is over. mayEnd reports whether the consumer may have closed itself, which its channel does not tell. idle is called
// by whoever waits: after each wait of empty or longer, and once a second if nothing came for a second.
func New(ended context.Context, consumer pulsar.Consumer, messages <-chan pulsar.ConsumerMessage, ahead int, mayEnd func() bool,
	idle func(quiet time.Duration)) *Intake {
	x := &Intake{
		messages: messages,
		ahead:    make([]pulsar.ConsumerMessage, 0, max(1, ahead)),
		receiver: receiver{consumer: consumer, ended: ended},
		ended:    ended,
		mayEnd:   mayEnd,
		idle:     idle,
		wake:     make(chan struct{}, 1),
		start:    time.Now(),
	}
	x.timer = time.AfterFunc(time.Hour, x.checks)
	x.timer.Reset(time.Second)
	context.AfterFunc(ended, x.Wake)
	if messages == nil {
		x.receiver.got = make(chan receipt, 1)
		x.Connected()
	}
	return x
}

// Close ends the checks. ended is over.
func (x *Intake) Close() { x.timer.Stop() }

// checks has whoever waits for a message see to the consumer once a second.
func (x *Intake) checks() {
	if x.ended.Err() != nil {
		return
	}
	x.check.Store(true)
	x.Wake()
	x.timer.Reset(time.Second)
}

// Wake has whoever has the turn look for something else than messages of the consumer.
func (x *Intake) Wake() {
	select {
	case x.wake <- struct{}{}:
	default: // it has one
	}
}

// Acquire waits for the turn.
func (x *Intake) Acquire(ctx context.Context) error { return x.acquire(ctx, false) }

// Interrupt waits for the turn as Acquire does, and has whoever waits for a message give it up.
func (x *Intake) Interrupt() error {
	if x.ended.Err() != nil {
		return ErrClosed
	}
	if err := x.acquire(context.Background(), true); err != nil {
		return err
	}
	x.receiver.recall()
	return nil
}

func (x *Intake) acquire(ctx context.Context, interrupts bool) error {
	w := x.turn.take(interrupts)
	if w != nil && interrupts {
		x.Wake()
	}
	for w != nil {
		select {
		case <-w.wake:
			if x.turn.look(w) {
				return nil
			}
		case <-ctx.Done():
			x.turn.giveUp(w)
			return ctx.Err()
		case <-x.ended.Done():
			x.turn.giveUp(w)
			return ErrClosed
		}
	}
	return nil
}

// Release gives the turn back.
func (x *Intake) Release() { x.turn.release() }

// Disconnected tells that the connection was lost.
func (x *Intake) Disconnected() {
	x.receiver.losses.Add(1)
	x.receiver.lost.Store(true)
}

// Connected tells that there is a connection.
func (x *Intake) Connected() {
	x.receiver.lost.Store(false)
	x.receiver.again.Store(true)
}

// Replace has the messages of another consumer taken. The caller has the turn.
func (x *Intake) Replace(consumer pulsar.Consumer, messages <-chan pulsar.ConsumerMessage) {
	x.receiver.consumer, x.messages = consumer, messages
}

// Forget lets go of what was received before. The caller has the turn, by Interrupt.
func (x *Intake) Forget() {
	clear(x.ahead)
	x.next = len(x.ahead)
	select {
	case <-x.receiver.got:
		x.receiver.cancel = nil
	default:
	}
}

// Take waits for the next message. The caller has the turn.
func (x *Intake) Take(ctx context.Context) (cm pulsar.ConsumerMessage, event Event, err error) {
	if x.messages == nil {
		x.receiver.begin()
	} else if x.next < len(x.ahead) || x.takeAhead() {
		cm, x.ahead[x.next] = x.ahead[x.next], cm
		x.next++
		return cm, Message, nil
	}
	switch {
	case x.turn.isWanted():
		return cm, Interrupted, nil
	case x.ended.Err() != nil:
		return cm, Woken, ErrClosed
	}
	begin := time.Since(x.start)
	defer func() { x.waited(begin, event, err) }()
	select {
	case cm = <-x.messages:
		return cm, Message, nil
	case got := <-x.receiver.got:
		return x.receiver.take(got)
	case <-x.wake:
		switch {
		case x.ended.Err() != nil:
			return cm, Woken, ErrClosed
		case x.turn.isWanted():
			return cm, Interrupted, nil
		case x.check.CompareAndSwap(true, false):
			return x.look()
		}
		return cm, Woken, nil
	case <-ctx.Done():
		if x.messages == nil && (x.mayEnd() || x.receiver.repeats(x.quiet+time.Since(x.start)-begin >= time.Second)) {
			x.receiver.recall()
		}
		return cm, Woken, ctx.Err()
	}
}

// IsReady reports whether Take would return a message at once. The caller has the turn.
func (x *Intake) IsReady() bool {
	if x.messages == nil {
		x.receiver.begin()
	}
	return x.next < len(x.ahead) || len(x.messages) > 0 || len(x.receiver.got) > 0
}

// takeAhead takes what there is, and reports whether that is something.
func (x *Intake) takeAhead() bool {
	x.ahead, x.next = x.ahead[:0], 0
	for len(x.ahead) < cap(x.ahead) {
		select {
		case cm := <-x.messages:
			x.ahead = append(x.ahead, cm)
			continue
		default:
		}
		break
	}
	if len(x.ahead) == 0 {
		return false
	}
	x.quiet = 0
	return true
}

// look finds out whether the consumer has closed itself, as it does when it gives up reconnecting. It may find a message
// instead, though not of which child it is: one in chunks can then not be acknowledged on a consumer of several topics.
func (x *Intake) look() (cm pulsar.ConsumerMessage, event Event, err error) {
	switch {
	case x.messages == nil:
		if x.receiver.lost.Load() { // upstream cannot close itself during a call
			x.receiver.recall()
		}
	case x.mayEnd():
		select {
		case cm = <-x.messages:
			return cm, Message, nil
		default:
		}
		done, cancel := context.WithCancel(context.Background())
		cancel()
		msg, err := x.receiver.consumer.Receive(done)
		switch {
		case err == nil:
			return pulsar.ConsumerMessage{Consumer: x.receiver.consumer, Message: msg}, Message, nil
		case !errors.Is(err, context.Canceled):
			return cm, Woken, err
		}
	}
	if x.quiet >= time.Second {
		x.idle(x.quiet)
	}
	return cm, Woken, nil
}

// waited notes for how long somebody waited for a message in vain.
func (x *Intake) waited(begin time.Duration, event Event, err error) {
	wait := time.Since(x.start) - begin
	if event == Message && err == nil {
		x.quiet = 0
	} else if event != Interrupted {
		x.quiet += wait
	}
	if wait >= empty {
		x.idle(min(wait, time.Second-1)) // for longer: see look
	}
}
