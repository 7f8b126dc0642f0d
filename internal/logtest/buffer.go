// Package logtest has loggers for tests.
package logtest

import (
	"bytes"
	"sync"
)

// Buffer is a log that may be read while it is written. Any number of goroutines may use it.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
