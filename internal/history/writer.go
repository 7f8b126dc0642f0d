package history

import (
	"io"
	"sync"
	"time"
)

// Writer writes a history. It gives each event its time, so that times in a file never decrease. It is safe for
// concurrent use.
type Writer struct {
	mu   sync.Mutex
	to   io.Writer
	last int64
	err  error
}

// NewWriter makes a Writer. It writes each line at once and as a whole, so that a process that is killed leaves at most
// its last line unfinished.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to} }

// Write writes an event that happens now, and returns it with its time. Call it before a nack or an acknowledgement,
// and after Receive.
func (w *Writer) Write(e Event) Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = max(w.last, time.Now().UnixMicro())
	e.At = w.last
	if _, err := io.WriteString(w.to, e.String()+"\n"); err != nil && w.err == nil {
		w.err = err
	}
	return e
}

// Err returns the first error of writing.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
