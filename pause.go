package redelivery

import (
	"context"
	"sync/atomic"
)

// pause keeps Receive from taking the turn: from Pause until Resume, and while another call waits for the turn.
type pause struct {
	on         atomic.Bool  // set by Pause
	interrupts atomic.Int32 // calls of interrupt that wait for the turn
	changes    signal
}

func (p *pause) isOver() bool { return !p.on.Load() && p.interrupts.Load() == 0 }

func (p *pause) set(on bool) {
	if p.on.Swap(on) != on {
		p.changes.send()
	}
}

// wait waits until there is no pause.
func (p *pause) wait(ctx context.Context, ended <-chan struct{}) error {
	for !p.isOver() {
		changed := p.changes.wait()
		if p.isOver() {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-ended:
			return ErrClosed
		}
	}
	return nil
}

// interrupt begins a pause for a call that waits for the turn. The pause lasts until the function that it returns is
// called.
func (p *pause) interrupt() (end func()) {
	p.interrupts.Add(1)
	return func() {
		p.interrupts.Add(-1)
		p.changes.send()
	}
}

// Pause stops Receive and Chan from delivering messages, new or due, until Resume. A Receive that is running already
// may still return one. The application keeps the messages that it has, and can settle them; ack timeouts and delays
// run on. The broker sends until the receiver queue is full. With FromAuto, on Shared and Key_Shared, a message that is
// due and not received goes back to the broker after 30 seconds or less; GiveBack returns prefetched messages too. If
// pulsar.ConsumerOptions had a MessageChannel with a buffer, messages in that buffer can still be taken. A second Pause
// does nothing. Close ends a Receive that waits.
func (c *Consumer) Pause() {
	c.pause.set(true)
	c.wakeUp()
	c.awaitOffer()
}

// Resume ends Pause. A second Resume does nothing.
func (c *Consumer) Resume() { c.pause.set(false) }
