package redelivery

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/pulsar-redelivery/redelivery/internal/intake"
)

// pause keeps messages from the application.
type pause struct {
	on atomic.Bool

	mu    sync.Mutex
	begun chan struct{} // closed when a pause begins
	over  chan struct{} // closed while there is none
}

func newPause() *pause {
	p := &pause{begun: make(chan struct{}), over: make(chan struct{})}
	close(p.over)
	return p
}

// set begins or ends a pause, and reports whether that changed anything.
func (p *pause) set(on bool) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.on.CompareAndSwap(!on, on) {
		return false
	}
	if on {
		close(p.begun)
		p.over = make(chan struct{})
	} else {
		close(p.over)
		p.begun = make(chan struct{})
	}
	return true
}

// next returns what is closed when the next pause begins, or has begun.
func (p *pause) next() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begun
}

// end returns what is closed when there is no pause.
func (p *pause) end() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}

// unpaused waits until the Consumer is not paused.
func (c *Consumer) unpaused(ctx context.Context) error {
	if !c.pause.on.Load() {
		return nil
	}
	select {
	case <-c.pause.end():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.life.ended.Done():
		return intake.ErrClosed
	}
}

// Pause stops Receive and Chan from delivering messages, new or due, until Resume. The application keeps the messages that it has, and
// settles them as usual; ack timeouts and delays run on. The broker sends until the receiver queue is full. On Shared and Key_Shared a
// message that is due and not received goes back to the broker after 30 seconds or less; GiveBack returns prefetched messages too. If
// pulsar.ConsumerOptions had a MessageChannel with a buffer, messages in that buffer can still be taken. A second Pause does nothing.
// Close ends a Receive that waits.
func (c *Consumer) Pause() {
	if c.pause.set(true) {
		c.intake.Wake()
	}
}

// Resume ends Pause. A second Resume does nothing.
func (c *Consumer) Resume() { c.pause.set(false) }

// Done returns a channel that is closed when the Consumer is closed or gives up: pulsar-client-go closes a consumer after
// MaxReconnectToBroker attempts, and Receive then returns its error. It is closed too when somebody else closes the client; after Wrap, and
// with TopicsPattern, only when a Receive finds nothing more that was prefetched. Any number of goroutines may wait for it.
func (c *Consumer) Done() <-chan struct{} { return c.life.ended.Done() }
