package worker

import (
	"context"
	"sync"
)

// valve lets messages be taken while it is open.
type valve struct {
	mu     sync.Mutex
	opened chan struct{}      // closed when the valve opens; nil while it is open
	flow   context.Context    // of those who take while it is open; nil until one does
	stop   context.CancelFunc // ends flow
	over   bool               // it cannot be shut any more
}

// wait waits while the valve is shut. It returns a context to take messages with, which ends when the valve is shut or ctx is done.
func (v *valve) wait(ctx context.Context) (context.Context, error) {
	return v.waitAnd(ctx, func() func() { return func() {} })
}

// waitAnd is wait, which calls meanwhile before it waits, and what that returns after it.
func (v *valve) waitAnd(ctx context.Context, meanwhile func() (after func())) (context.Context, error) {
	for {
		v.mu.Lock()
		opened := v.opened
		if opened == nil {
			if v.flow == nil {
				v.flow, v.stop = context.WithCancel(ctx) //nolint:fatcontext // one at a time: stop ends it before the next
			}
			flow := v.flow
			v.mu.Unlock()
			return flow, ctx.Err()
		}
		v.mu.Unlock()
		after := meanwhile()
		select {
		case <-opened:
		case <-ctx.Done():
		}
		after()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// shut has nobody take messages until open.
func (v *valve) shut() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.opened != nil || v.over {
		return
	}
	v.opened = make(chan struct{})
	if v.flow != nil {
		v.stop()
		v.flow = nil
	}
}

// interrupt has those who take messages look again.
func (v *valve) interrupt() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.flow != nil {
		v.stop()
		v.flow = nil
	}
}

func (v *valve) open() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.opened != nil {
		close(v.opened)
		v.opened = nil
	}
}

// end opens the valve permanently.
func (v *valve) end() {
	v.mu.Lock()
	v.over = true
	v.mu.Unlock()
	v.open()
}

func (v *valve) isShut() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.opened != nil
}
