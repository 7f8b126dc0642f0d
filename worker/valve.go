package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// valve lets messages be taken while it is open.
type valve struct {
	flow atomic.Pointer[context.Context] // of those who take while it is open; nil until one does

	mu     sync.Mutex         // held to change flow, and for what follows
	opened chan struct{}      // closed when the valve opens; nil while it is open
	asked  bool               // shut by Pause
	until  time.Time          // shut by PauseFor until then; zero if not
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
		if flow := v.flow.Load(); flow != nil {
			return *flow, ctx.Err()
		}
		v.mu.Lock()
		opened := v.opened
		if opened == nil && v.flow.Load() == nil {
			flow, stop := context.WithCancel(ctx)
			v.flow.Store(&flow)
			v.stop = stop
		}
		v.mu.Unlock()
		if opened == nil {
			continue
		}
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
	v.asked = !v.over
	v.turn()
}

// turn shuts or opens the valve, whichever is right now. The caller holds mu.
func (v *valve) turn() {
	switch shut := v.asked || !v.until.IsZero(); {
	case shut && v.opened == nil:
		v.opened = make(chan struct{})
		v.endFlow()
	case !shut && v.opened != nil:
		close(v.opened)
		v.opened = nil
	}
}

// interrupt has those who take messages look again.
func (v *valve) interrupt() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.endFlow()
}

// endFlow ends what is under way. The caller holds mu.
func (v *valve) endFlow() {
	if v.flow.Swap(nil) != nil {
		v.stop()
	}
}

func (v *valve) open() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = false
	v.turn()
}

// end opens the valve permanently.
func (v *valve) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.over, v.asked, v.until = true, false, time.Time{}
	v.turn()
}

// isShut reports whether nobody takes messages.
func (v *valve) isShut() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.opened != nil
}

// isAsked reports whether the valve is shut by Pause.
func (v *valve) isAsked() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.asked
}
