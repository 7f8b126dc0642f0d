package upstream

import (
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
		r.timer = time.AfterFunc(attemptTime, r.end)
		r.begin(attemptTime) // before Lost: otherwise Reconnecting could return 0 after Lost
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
	timer *time.Timer // goes off when the reconnection has ended unnoticed
}

func (r *reconnection) Next() time.Duration {
	d := r.Policy.Next()
	r.begin(d + attemptTime)
	return d
}

func (r *reconnection) Reset() {
	r.timer.Stop()
	r.end()
	r.Policy.Reset()
}

// attemptTime is longer than any attempt to connect with default timeouts: a look-up takes up to 30 s, a connection 10 s
// and a subscription 30 s.
const attemptTime = 2 * time.Minute

// begin notes that a reconnection goes on for d at most, unless begin is called again.
func (r *reconnection) begin(d time.Duration) {
	r.hooks.mu.Lock()
	defer r.hooks.mu.Unlock()
	r.hooks.reconnections[r] = true
	r.timer.Reset(d)
}

func (r *reconnection) end() {
	r.hooks.mu.Lock()
	defer r.hooks.mu.Unlock()
	delete(r.hooks.reconnections, r)
}

// Reconnecting returns how many topics or partitions have no connection.
func (h *Hooks) Reconnecting() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.reconnections)
}

// Forget forgets all reconnections, since their consumer was closed.
func (h *Hooks) Forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.reconnections)
}
