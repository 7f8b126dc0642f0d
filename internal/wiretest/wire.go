// Package wiretest has networks between a broker and its clients, for tests.
package wiretest

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Wire is a network between a broker and its clients. It delays data, and may stop.
type Wire struct {
	Addr   string // for clients
	target string
	oneWay time.Duration

	mu   sync.Mutex
	gate chan struct{} // closed while data may pass
}

// New returns a Wire to a broker's host and port, with the given round-trip time. In the broker's answers, Addr
// replaces the host and port if both texts have the same length.
func New(t testing.TB, target string, roundTrip time.Duration) *Wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	w := &Wire{Addr: listener.Addr().String(), target: target, oneWay: roundTrip / 2, gate: make(chan struct{})}
	close(w.gate)
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			broker, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				return
			}
			go w.pass(client, broker)
			go w.pass(broker, client)
		}
	}()
	return w
}

// Stop holds all data back until goOn is called.
func (w *Wire) Stop() (goOn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gate := make(chan struct{})
	w.gate = gate
	return func() { close(gate) }
}

// pass copies bytes. Each piece takes the same time, however many bytes are on their way.
func (w *Wire) pass(from, to net.Conn) {
	type piece struct {
		data []byte
		due  time.Time
	}
	pieces := make(chan piece, 10_000)
	go func() {
		defer to.Close()
		for p := range pieces {
			time.Sleep(time.Until(p.due))
			w.mu.Lock()
			gate := w.gate
			w.mu.Unlock()
			<-gate
			if _, err := to.Write(p.data); err != nil {
				break
			}
		}
		for range pieces { // so that the reading goroutine can go on
			continue
		}
	}()
	defer close(pieces)
	for {
		data := make([]byte, 64<<10)
		n, err := from.Read(data)
		if err != nil {
			return
		}
		data = data[:n]
		if len(w.Addr) == len(w.target) {
			data = bytes.ReplaceAll(data, []byte(w.target), []byte(w.Addr))
		}
		pieces <- piece{data, time.Now().Add(w.oneWay)}
	}
}
