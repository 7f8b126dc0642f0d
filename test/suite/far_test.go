package suite

import (
	"bytes"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

// wire is what clients of a broker pass through: it takes its time, and may stand still.
type wire struct {
	target, addr string
	oneWay       time.Duration

	mu   sync.Mutex
	gate chan struct{} // closed while data may pass
}

// behind returns the broker as clients see it through a wire with this round trip.
func behind(t testing.TB, b *broker, roundTrip time.Duration) (*broker, *wire) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	w := &wire{target: strings.TrimPrefix(b.url, "pulsar://"), addr: listener.Addr().String(), oneWay: roundTrip / 2, gate: make(chan struct{})}
	close(w.gate)
	require.Len(t, w.addr, len(w.target), "it takes the place of the broker's address in answers to look-ups")
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			broker, err := net.Dial("tcp", w.target)
			if err != nil {
				client.Close()
				return
			}
			go w.pass(client, broker)
			go w.pass(broker, client)
		}
	}()
	far := *b
	far.url = "pulsar://" + w.addr
	far.connect(pulsar.ClientOptions{})
	return &far, w
}

// stop lets nothing pass until the function that it returns is called.
func (w *wire) stop() (goOn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gate := make(chan struct{})
	w.gate = gate
	return func() { close(gate) }
}

func (w *wire) pass(from, to net.Conn) {
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
				return
			}
		}
	}()
	defer close(pieces)
	for {
		data := make([]byte, 64<<10)
		n, err := from.Read(data)
		if err != nil {
			return
		}
		pieces <- piece{bytes.ReplaceAll(data[:n], []byte(w.target), []byte(w.addr)), time.Now().Add(w.oneWay)}
	}
}
