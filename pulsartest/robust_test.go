package pulsartest

import (
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A thousand connections announce a large frame each and send only its beginning. The server must allocate memory only
// for the bytes that it has received.
func TestAnnouncedFramesCostLittleMemory(t *testing.T) {
	s := NewServer(t, WithLogger(slog.New(slog.DiscardHandler)))
	promise := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 5<<20), 5<<20-4)
	before := memory()
	var conns []net.Conn
	for range 1000 {
		conn, err := net.Dial("tcp", s.broker.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.Write(promise)
		require.NoError(t, err)
		conns = append(conns, conn)
	}
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.sessions) == 1000
	}, 10*time.Second, time.Millisecond)
	time.Sleep(50 * time.Millisecond) // until the server has read all beginnings
	grown := int64(memory()) - int64(before)
	t.Logf("%d KiB each", grown/1000/1024)
	require.Less(t, grown, int64(32<<20))
	for _, c := range conns {
		_ = c.Close()
	}
	checkDelivery(t, s)
}

func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

func TestFramesMayComeInSmallPieces(t *testing.T) {
	s := NewServer(t)
	conn, err := net.Dial("tcp", s.broker.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	for _, b := range frames(hello()) {
		_, err := conn.Write([]byte{b})
		require.NoError(t, err)
	}
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err = io.ReadFull(conn, make([]byte, 8))
	require.NoError(t, err)
}
