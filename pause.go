package redelivery

import (
	"context"
	"sync/atomic"
)

// pause is the state that Pause and Resume set.
type pause struct {
	on      atomic.Bool
	changes signal
}

func (p *pause) set(on bool) {
	if p.on.Swap(on) != on {
		p.changes.send()
	}
}

// wait waits until there is no pause.
func (p *pause) wait(ctx context.Context, ended <-chan struct{}) error {
	for p.on.Load() {
		changed := p.changes.wait()
		if !p.on.Load() {
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

// Pause stops Receive and Chan from delivering messages, new or due, until Resume. The application keeps the messages
// that it has, and can settle them; ack timeouts and delays run on. The broker sends until the receiver queue is full.
// On Shared and Key_Shared a message that is due and not received goes back to the broker after 30 seconds or less;
// GiveBack returns prefetched messages too. If pulsar.ConsumerOptions had a MessageChannel with a buffer, messages in
// that buffer can still be taken. A second Pause does nothing. Close ends a Receive that waits.
func (c *Consumer) Pause() {
	c.pause.set(true)
	c.wakeUp()
}

// Resume ends Pause. A second Resume does nothing.
func (c *Consumer) Resume() { c.pause.set(false) }
