// Package driver drives a consumer of pulsar-client-go for a redelivery.Consumer, whose methods are documented there. It takes
// what the inner consumer delivers, asks a Ledger what becomes of it, and does what the Ledger or the application decides.
package driver

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/gate"
	"github.com/pulsar-redelivery/redelivery/internal/intake"
	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// Driver drives one consumer. Any number of goroutines may use it.
type Driver struct {
	outer     pulsar.Consumer // what the application knows
	inner     pulsar.Consumer
	raw       atomic.Value // reflect.Type of the messages that the inner consumer delivers
	settings  *Settings
	hooks     *hooks // in the inner consumer
	intake    *intake.Intake
	cameAgain bool // the last message that was handed out had waited here; for whoever has the turn
	ledger    *ledger.Ledger
	publisher *publisher // of retries and dead letters
	outlet    outlet     // the channel that Chan returns
	observer  observer

	calls *gate.Gate // calls of the inner consumer
	crew  *gate.Gate // goroutines
	life  *life
	tally tally

	// What goroutines that must not wait have others do:
	swallows chores // copies of settled messages
	asides   chores // what policies are asked for messages that the application does not get
	requests chores // what interceptors are told of requests
}

// tally is what has happened.
type tally struct {
	swallowed, failed atomic.Uint64
	warned            bool // of many unacknowledged messages; for whoever has the turn
}

// New returns a Driver of inner for outer, which Start starts. p is nil if inner was not prepared.
func New(outer, inner pulsar.Consumer, s *Settings, p *Preparation, o Observer) *Driver {
	x := &Driver{
		outer:     outer,
		inner:     inner,
		settings:  s,
		hooks:     &hooks{},
		publisher: newPublisher(s, p),
		calls:     gate.New(),
		crew:      gate.New(),
		life:      newLife(),
		observer:  observer{Observer: o},
	}
	messages := ChanOf(inner)
	x.ledger = ledger.New(x.ledgerOptions(p, cap(messages), messages != nil))
	if p != nil {
		x.hooks = p.hooks
		p.warn()
	}
	x.intake = intake.New(x.life.ended, inner, messages, x.hooks.mayBeClosed, func() { x.safely(x.idle) })
	x.outlet.ch = make(chan pulsar.ConsumerMessage)
	if p != nil && p.opts.MessageChannel != nil {
		x.outlet.ch, x.outlet.given = p.opts.MessageChannel, true
	}
	return x
}

// Start has the inner consumer's hooks find the Driver, calls begun, and feeds a channel that the application gave.
func (x *Driver) Start(begun func()) {
	x.hooks.driver.Store(x)
	begun()
	if x.outlet.given {
		x.startFeeder()
	}
}

// ask requests a message. The inner consumer sends requests with its next tick.
func (x *Driver) ask(child pulsar.Consumer, topic string, id pulsar.MessageID) {
	x.hooks.asked()
	child.NackID(id)
	x.asked(topic, id)
}

// Seek resets the subscription to a message id.
func (x *Driver) Seek(id pulsar.MessageID) error {
	if err := checkID(id); err != nil {
		return err
	}
	if !isPulsarID(id) {
		return foreign(id) // upstream would stop dispatching until it reconnects
	}
	return x.WithReaderStopped(func() error { return x.inner.Seek(id) })
}

// WithReaderStopped calls the inner consumer while nobody takes messages from it, and forgets what was received before. Upstream's Seek
// drains its channel and can block against a second reader; its zero-queue consumer has Unsubscribe wait for Receive.
func (x *Driver) WithReaderStopped(call func() error) error {
	if err := x.intake.Interrupt(); err != nil {
		return ErrClosed
	}
	defer x.intake.Release()
	if err := x.call(call); err != nil {
		return err
	}
	x.life.next()
	x.intake.Forget()
	x.ledger.Clear()
	for x.outlet.given { // as upstream does
		select {
		case <-x.outlet.ch:
		default:
			return nil
		}
	}
	return nil
}

// GetLastMessageIDs asks the inner consumer, which asks for a backoff then, as for a reconnection.
func (x *Driver) GetLastMessageIDs() ([]pulsar.TopicMessageID, error) {
	return x.inner.GetLastMessageIDs()
}

// Stats returns the counters of the Ledger, how many copies were swallowed, and how many failures reported.
func (x *Driver) Stats() (s ledger.Stats, swallowed, failed uint64) {
	return x.ledger.Stats(), x.tally.swallowed.Load(), x.tally.failed.Load()
}

// Fail reports what cannot be returned. The operation is for observers.
func (x *Driver) Fail(operation, what string, err error, attrs ...any) {
	x.report(what, err, attrs...)
	x.failed(operation, err)
}

// report is Fail without telling observers: they are told already.
func (x *Driver) report(what string, err error, attrs ...any) {
	x.Log(slog.LevelWarn, what+" failed", append(attrs, "error", err)...)
	x.tally.failed.Add(1)
}

// Log logs what happened to the consumer.
func (x *Driver) Log(level slog.Level, msg string, attrs ...any) {
	x.settings.Logger.Log(context.Background(), level, "redelivery: "+msg,
		append(attrs, "consumer", x.inner.Name(), "subscription", x.inner.Subscription())...)
}

// safely calls what may call code that is not ours, where nobody could recover from its panic.
func (x *Driver) safely(call func()) {
	defer func() {
		if r := recover(); r != nil {
			x.Panicked(r, true)
		}
	}()
	call()
}

// Panicked reports the panic of code that is not ours, to observers too if they are to be told.
func (x *Driver) Panicked(r any, tell bool) {
	const what = "a callback"
	if err := fmt.Errorf("panic: %v", r); tell {
		x.Fail("callback", what, err)
	} else {
		x.report(what, err)
	}
}
