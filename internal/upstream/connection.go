package upstream

import (
	"maps"
	"runtime"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar/backoff"
)

// backoffPolicy returns the function that pulsar-client-go calls at the beginning of each reconnection. The call is the
// only public sign of a reconnection.
func (h *Hooks) backoffPolicy(of func() backoff.Policy) func() backoff.Policy {
	if of == nil {
		of = backoff.NewDefaultBackoff
	}
	return func() backoff.Policy {
		if isQuery() {
			return of()
		}
		r := &reconnection{Policy: of(), hooks: h}
		h.until(r, attemptTime) // before Lost: otherwise Reconnecting could return 0 after Lost
		h.events.Lost()
		return r
	}
}

// isQuery reports whether GetLastMessageIDs is the caller. GetLastMessageIDs, too, asks for a backoff, in the goroutine
// of its caller. Only the call stack distinguishes this from a reconnection. Reading the stack costs little compared
// with the round trip that follows.
func isQuery() bool {
	var callers [32]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, "onsumer).GetLastMessageIDs") {
			return true
		}
		if !more {
			return false
		}
	}
}

// reconnection is the backoff policy of one reconnection. Upstream calls Reset when the connection is back. It calls
// nothing when the topic was deleted.
type reconnection struct {
	backoff.Policy
	hooks *Hooks
}

func (r *reconnection) Next() time.Duration {
	d := r.Policy.Next()
	r.hooks.until(r, d+attemptTime)
	return d
}

func (r *reconnection) Reset() {
	r.hooks.mu.Lock()
	delete(r.hooks.attempts, r)
	r.hooks.mu.Unlock()
	r.Policy.Reset()
}

const (
	// attemptTime is longer than any attempt to connect: by default a look-up takes up to 30 s, a connection 10 s and a
	// subscription 30 s.
	attemptTime = 2 * time.Minute
	pruneEvery  = time.Second
)

// until notes that a reconnection ends after d at the latest, unless a later call of until gives another time.
func (h *Hooks) until(r *reconnection, d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attempts[r] = time.Now().Add(d)
	h.prune()
}

// prune forgets reconnections that have ended unnoticed. It looks for them once a second, so that ten thousand topics
// cost little. The caller holds mu.
func (h *Hooks) prune() {
	now := time.Now()
	if len(h.attempts) == 0 || now.Sub(h.pruned) < pruneEvery {
		return
	}
	h.pruned = now
	maps.DeleteFunc(h.attempts, func(_ *reconnection, until time.Time) bool { return now.After(until) })
}

// Reconnecting returns how many topics or partitions have no connection.
func (h *Hooks) Reconnecting() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.prune()
	return len(h.attempts)
}

// Forget forgets all reconnections, since their consumer was closed.
func (h *Hooks) Forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.attempts)
}
