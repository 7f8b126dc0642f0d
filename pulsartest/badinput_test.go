package pulsartest

import (
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math"
	"math/rand"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

func frames(cmds ...wire.Command) []byte {
	var out []byte
	for _, c := range cmds {
		out = wire.AppendFrame(out, c, 0)
	}
	return out
}

func sendFrame(m *cmdSend, data []byte) []byte {
	return append(wire.AppendFrame(nil, m, len(data)), data...)
}

func hello() *cmdConnect { return &cmdConnect{ClientVersion: "fuzz", ProtocolVersion: 20} }

func TestBadInputClosesItsConnectionAndIsLogged(t *testing.T) {
	var log logtest.Buffer
	s := NewServer(t, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	producer := frames(hello(), &cmdProducer{Topic: "t", Producer: 1, TopicEpoch: wire.Absent})
	good := wire.Join(&wire.Metadata{ProducerName: "p", BatchSize: 1}, []byte("payload"))
	header := func(total, size uint32, rest string) []byte {
		b := binary.BigEndian.AppendUint32(frames(hello()), total)
		return append(binary.BigEndian.AppendUint32(b, size), rest...)
	}
	for _, c := range []struct {
		name, says string
		in         []byte
	}{
		{"truncated frame", "unexpected EOF", frames(hello(), hello())[:30]},
		{"truncated message", "unexpected EOF", append(producer, sendFrame(&cmdSend{Producer: 1}, good)[:40]...)},
		{"oversized frame", "frame of 4294967295 bytes", header(math.MaxUint32, 4, "")},
		{"tiny frame", "frame of 1 bytes", header(1, 0, "")},
		{"command longer than its frame", "command of 100 bytes", header(10, 100, "123456")},
		{"not protobuf", "truncated", header(8, 4, "\xff\xff\xff\xff")},
		{"unknown command", "unknown command 99", header(6, 2, "\x08\x63")},
		{"a broker's command", "CONNECTED is not for a broker", frames(hello(), &cmdConnected{})},
		{"no connect", "not connected", frames(&cmdLookup{Topic: "t"})},
		{"two connects", "connected before", frames(hello(), hello())},
		{"no metadata", "without metadata",
			append(producer, sendFrame(&cmdSend{Producer: 1, Messages: 1}, good[:2])...)},
		{"unknown producer", "producer 7 is unknown",
			append(producer, sendFrame(&cmdSend{Producer: 7, Messages: 1}, good)...)},
		{"batch without end", "batch of 2147483647", append(producer, sendFrame(&cmdSend{Producer: 1},
			wire.Join(&wire.Metadata{BatchSize: math.MaxInt32}, nil))...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := len(log.String())
			conn, err := net.Dial("tcp", s.broker.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			_, _ = conn.Write(c.in)
			require.NoError(t, conn.(*net.TCPConn).CloseWrite())
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
			_, err = io.Copy(io.Discard, conn)
			var timeout net.Error
			require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "the connection stays open")
			require.Contains(t, log.String()[before:], "level=WARN")
			require.Contains(t, log.String()[before:], c.says)
		})
	}
	checkDelivery(t, s)
}

// checkDelivery checks that the server still delivers a message to a new client.
func checkDelivery(t testing.TB, s *Server) {
	t.Helper()
	c := newClient(t, s.URL())
	k := subscribe(t, c, pulsar.ConsumerOptions{Topic: "goes-on", SubscriptionName: "s"})
	send(t, newProducer(t, c, pulsar.ProducerOptions{Topic: "goes-on"}), "still here")
	require.Equal(t, "still here", string(receive(t, k).Payload()))
}

// feed sends bytes to the server on one connection, and waits until the server closes the connection.
func feed(s *Server, in []byte) {
	ours, theirs := net.Pipe()
	closed := make(chan struct{})
	s.serve(theirs)
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, ours)
	}()
	_, _ = ours.Write(in)
	_ = ours.Close()
	<-closed
}

func TestServerSurvivesTenThousandRandomStreams(t *testing.T) {
	for round := range 50 {
		s := NewServer(t, WithLogger(slog.New(slog.DiscardHandler)), WithMaxMessageSize(10_000),
			WithFailoverDelay(time.Millisecond), WithMaxUnacked(20, 50))
		var wg sync.WaitGroup
		for worker := range 4 {
			wg.Go(func() {
				rnd := rand.New(rand.NewSource(int64(4*round + worker)))
				for i := range 50 {
					feed(s, randomStream(rnd))
					if i%10 == 9 {
						checkInvariants(t, s)
					}
					if i == 30 {
						s.Unload([]string{"a", "b", "c", ""}[worker])
					}
				}
			})
		}
		wg.Wait()
		checkSurvival(t, s)
	}
}

// checkSurvival checks that all connections end, and that the server still delivers a message.
func checkSurvival(t *testing.T, s *Server) {
	checkInvariants(t, s)
	for _, topic := range s.Topics() {
		s.Messages(topic)
		s.Subscription(topic, "s")
	}
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.sessions) == 0
	}, 10*time.Second, time.Millisecond)
	checkDelivery(t, s)
}

func FuzzServer(f *testing.F) {
	rnd := rand.New(rand.NewSource(1))
	for range 20 {
		f.Add(randomStream(rnd))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		s := NewServer(t, WithLogger(slog.New(slog.DiscardHandler)))
		feed(s, in)
		checkInvariants(t, s)
	})
}

// checkInvariants compares the counters of each subscription with its pending messages.
func checkInvariants(t testing.TB, s *Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, topic := range s.topics {
		for _, sub := range topic.subs {
			unacked := map[*consumer]int{}
			for offset, p := range sub.pending {
				unacked[p.consumer] += p.messages
				if sub.cursor.acked(offset) {
					t.Errorf("entry %d is pending and acknowledged", offset)
				}
				for _, waiting := range sub.replay {
					if waiting == offset {
						t.Errorf("entry %d is pending and to be sent again", offset)
					}
				}
			}
			sum := 0
			for _, c := range sub.consumers {
				if c.unacked != unacked[c] {
					t.Errorf("consumer %s has %d pending messages, but counts %d", c.name, unacked[c], c.unacked)
				}
				sum += c.unacked
				delete(unacked, c)
			}
			if sum != sub.unacked || len(unacked) > 0 {
				t.Errorf("the consumers count %d messages, the subscription %d; %d removed consumers have pending ones",
					sum, sub.unacked, len(unacked))
			}
			if sub.cursor.mark > len(topic.log) || sub.cursor.read < sub.cursor.mark {
				t.Errorf("mark %d, read %d of %d", sub.cursor.mark, sub.cursor.read, len(topic.log))
			}
		}
	}
}
