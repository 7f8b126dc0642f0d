package worker

import (
	"bytes"
	"log/slog"
	"runtime"
	"time"
)

// stackOfPanic gets the stack of the place where a panic was recovered. It returns the stack without the frames above
// the function that panicked.
func stackOfPanic(stack []byte) []byte {
	header, frames, _ := bytes.Cut(stack, []byte("\n"))
	own, found := cutFrame(frames, "panic(")
	if !found {
		return stack
	}
	for bytes.HasPrefix(own, []byte("runtime.")) { // frames of the runtime when it panics itself, as for a nil pointer
		below, found := cutFrame(own, "runtime.")
		if !found {
			break
		}
		own = below
	}
	return append(append(header, '\n'), own...)
}

// cutFrame returns the frames below the first one whose function has a prefix. A frame has two lines: the function and
// its place.
func cutFrame(frames []byte, prefix string) (below []byte, found bool) {
	for at := 0; at < len(frames); {
		function, rest, _ := bytes.Cut(frames[at:], []byte("\n"))
		_, next, _ := bytes.Cut(rest, []byte("\n"))
		if bytes.HasPrefix(function, []byte(prefix)) {
			return next, true
		}
		at = len(frames) - len(next)
	}
	return nil, false
}

// goroutine returns the number of the calling goroutine, as stacks name it: "goroutine 7 ".
func goroutine() string {
	var header [64]byte
	n := runtime.Stack(header[:], false)
	name, _, _ := bytes.Cut(header[:n], []byte("["))
	return string(name)
}

// maxStacks is how many bytes of stacks are looked through.
const maxStacks = 16 << 20

// stackOf returns the stack of a goroutine, or "" if the goroutine has ended. name is the result of the function
// goroutine. stackOf stops the program for a moment.
func stackOf(name string) string {
	for size := 1 << 16; ; size *= 4 {
		stacks := make([]byte, size)
		n := runtime.Stack(stacks, true)
		if n == size && size < maxStacks {
			continue
		}
		for stack := range bytes.SplitSeq(stacks[:n], []byte("\n\n")) {
			if bytes.HasPrefix(stack, []byte(name)) {
				return string(stack)
			}
		}
		return ""
	}
}

// warn logs that a handler is stuck, if it has not returned from a call.
func (s *slot) warn(call int) {
	s.mu.Lock()
	if s.stage != handling || s.calls != call {
		s.mu.Unlock()
		return
	}
	attrs := about(s.tasks[0].counted())
	name := s.name
	s.mu.Unlock()
	s.logStuck(name, attrs)
	time.AfterFunc(s.stuckLimit-patience, func() { s.losePlace(call) })
}

// logStuck logs that a handler is stuck. Only the first line in a minute has the stack, since stackOf stops the program
// for a moment.
func (r *run) logStuck(goroutine string, attrs []slog.Attr) {
	if r.repeats.first("stuck", nil) {
		attrs = append(attrs, slog.String("stack", stackOf(goroutine)))
	}
	r.logger.LogAttrs(r.lasting, slog.LevelError, "worker: a handler is stuck", attrs...)
}
