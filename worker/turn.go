package worker

import "context"

// turn is held by one goroutine at a time. Unlike for a mutex, a goroutine may wait for it until a context ends.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) lock()   { t <- struct{}{} }
func (t turn) unlock() { <-t }

// lockOr waits for the turn until ctx is done, which it reports as an error.
func (t turn) lockOr(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
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
