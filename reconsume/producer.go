package reconsume

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// After a producer could not be created the next attempt waits, twice as long each time.
const minPause, maxPause = 100 * time.Millisecond, 10 * time.Second

// producer creates a pulsar.Producer when it is first needed. Creating one takes no context, so it happens in a goroutine of
// its own, for all who wait together.
type producer struct {
	create func() (pulsar.Producer, error)
	closed context.Context

	mu      sync.Mutex
	made    pulsar.Producer
	attempt *attempt // under way
	pause   time.Duration
	next    time.Time // not before this
	sending int
	idle    chan struct{} // closed when nothing is being sent; close makes it
}

type attempt struct {
	done chan struct{}
	made pulsar.Producer
	err  error
}

func newProducer(closed context.Context, create func() (pulsar.Producer, error)) *producer {
	return &producer{create: create, closed: closed}
}

func (p *producer) send(ctx context.Context, msg *pulsar.ProducerMessage) error {
	made, err := p.get(ctx)
	if err != nil {
		return err
	}
	if !p.begin() {
		return ErrClosed
	}
	defer p.end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.closed, cancel)()
	if _, err := made.Send(ctx, msg); err != nil {
		if p.closed.Err() != nil {
			return ErrClosed
		}
		if errors.Is(err, pulsar.ErrProducerClosed) {
			p.drop(made)
		}
		return fmt.Errorf("reconsume: publishing to %s: %w", made.Topic(), err)
	}
	return nil
}

// begin notes that something is about to be sent, and reports false if the producer is being closed: upstream's may panic
// when it is closed meanwhile. end must follow.
func (p *producer) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Err() != nil {
		return false
	}
	p.sending++
	return true
}

func (p *producer) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sending--; p.sending == 0 && p.idle != nil {
		close(p.idle)
	}
}

// drop makes the next call create a producer anew: this one closed itself.
func (p *producer) drop(closed pulsar.Producer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made == closed {
		p.made = nil
	}
}

// get returns the producer. It waits for the attempt to create one that is under way, or begins one.
func (p *producer) get(ctx context.Context) (pulsar.Producer, error) {
	if p.closed.Err() != nil {
		return nil, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	made, a := p.made, p.attempt
	if made == nil && a == nil {
		a = &attempt{done: make(chan struct{})}
		p.attempt = a
		go p.try(a, time.Until(p.next))
	}
	p.mu.Unlock()
	if made != nil {
		return made, nil
	}
	select {
	case <-a.done:
		if a.err != nil {
			return nil, a.err
		}
		return a.made, nil
	case <-p.closed.Done():
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, fmt.Errorf("reconsume: no producer in time: %w", ctx.Err())
	}
}

// try makes an attempt to create the producer.
func (p *producer) try(a *attempt, wait time.Duration) {
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.closed.Done():
		}
	}
	made, err := pulsar.Producer(nil), error(ErrClosed)
	if p.closed.Err() == nil {
		if made, err = p.create(); err != nil {
			made, err = nil, fmt.Errorf("reconsume: creating a producer: %w", err) // upstream returns a nil *producer with it
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attempt = nil
	switch {
	case err != nil:
		p.pause = min(max(2*p.pause, minPause), maxPause)
		p.next = time.Now().Add(p.pause)
	case p.closed.Err() != nil:
		a.err = ErrClosed
		go func() {
			made.Close()
			close(a.done)
		}()
		return
	default:
		p.made, p.pause = made, 0
	}
	a.made, a.err = made, err
	close(a.done)
}

// close closes what there is; the context that the producer was made with has ended, and with it what is being sent. It waits
// a while for a producer that is being created: the client may be closed next, and would keep its connection.
func (p *producer) close() {
	p.mu.Lock()
	made, a := p.made, p.attempt
	p.made = nil
	if p.idle == nil {
		p.idle = make(chan struct{})
		if p.sending == 0 {
			close(p.idle)
		}
	}
	p.mu.Unlock()
	patience := time.NewTimer(500 * time.Millisecond)
	defer patience.Stop()
	if a != nil {
		select {
		case <-a.done:
		case <-patience.C:
		}
	}
	if made != nil {
		select {
		case <-p.idle:
		case <-patience.C:
		}
		made.Close()
	}
}
