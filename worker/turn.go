package worker

import (
	"context"
	"sync"
	"time"
)

// turn is a mutex for which a goroutine can stop waiting when a context ends.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) lock()   { t <- struct{}{} }
func (t turn) unlock() { <-t }

// lockOr waits for the turn. If ctx is done first, it returns the error of ctx.
func (t turn) lockOr(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unlockWithin returns a function that unlocks the turn, which the caller has. If the function is not called within d,
// the turn is unlocked without it, after a call of late.
func (t turn) unlockWithin(d time.Duration, late func()) (unlock func()) {
	once := sync.OnceFunc(t.unlock)
	timer := time.AfterFunc(d, func() {
		late()
		once()
	})
	return func() {
		timer.Stop()
		once()
	}
}

func (t turn) tryLock() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}
