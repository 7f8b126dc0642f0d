package worker

import "context"

// turn is a lock that one goroutine at a time holds. Unlike for a mutex, a goroutine can stop waiting for it when a
// context ends.
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

func (t turn) tryLock() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}
