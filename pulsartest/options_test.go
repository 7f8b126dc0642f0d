package pulsartest

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

func TestExactDelaysDeliverNoMessageEarly(t *testing.T) {
	t.Parallel()
	s := NewServer(t, WithExactDelays())
	_, k, p := newPair(t, s)
	due := map[string]time.Time{}
	for _, delay := range []time.Duration{300 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond} {
		due[delay.String()] = time.Now().Add(delay).Truncate(time.Millisecond) // the protocol has whole milliseconds
		_, err := p.Send(context.Background(),
			&pulsar.ProducerMessage{Payload: []byte(delay.String()), DeliverAfter: delay})
		require.NoError(t, err)
	}
	for range due {
		delay := string(receive(t, k).Payload())
		late := time.Since(due[delay])
		require.GreaterOrEqual(t, late, time.Duration(0), "%s is early", delay)
		t.Logf("%s: %v late", delay, late)
	}
}

func TestLimitOfUnackedMessagesStopsDelivery(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]Option{"consumer": WithMaxUnacked(4, 0), "subscription": WithMaxUnacked(0, 4)} {
		t.Run(name, func(t *testing.T) {
			_, k, p := newPair(t, NewServer(t, limit))
			var held []pulsar.Message
			for range 4 {
				send(t, p, "m")
				held = append(held, receive(t, k))
			}
			for range 2 { // not before: a subscription's limit does not divide entries that the broker reads together
				send(t, p, "m")
			}
			receiveNothing(t, k)
			require.NoError(t, k.Ack(held[0]))
			receiveNothing(t, k) // the broker sends more when half of them are acknowledged
			for _, m := range held[1:] {
				require.NoError(t, k.Ack(m))
			}
			receive(t, k)
		})
	}
}

func TestWithoutTopicCreationRefusesUnknownTopics(t *testing.T) {
	t.Parallel()
	s := NewServer(t, WithoutTopicCreation())
	require.NoError(t, s.CreatePartitionedTopic("t", 1))
	c := newClient(t, s.URL())
	_, err := c.CreateProducer(pulsar.ProducerOptions{Topic: "unknown"})
	require.Error(t, err)
	newProducer(t, c, pulsar.ProducerOptions{Topic: "t"})
	require.Len(t, s.Topics(), 1)
}

func TestMaxMessageSizeMakesClientsRefuseLargerMessages(t *testing.T) {
	t.Parallel()
	s := NewServer(t, WithMaxMessageSize(1000))
	_, _, p := newPair(t, s)
	_, err := trySend(p, strings.Repeat("x", 2000))
	require.ErrorIs(t, err, pulsar.ErrMessageTooLarge)
}

func TestStartErrorNamesTheListenerThatFailed(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	_, err := Start(WithAddresses(s.broker.Addr().String(), "127.0.0.1:0"))
	require.ErrorContains(t, err, "broker: listen tcp")
	_, err = Start(WithAddresses("127.0.0.1:0", s.broker.Addr().String()))
	require.ErrorContains(t, err, "admin: listen tcp")
}

func TestCloseEndsOpenConnectionsAndMayBeRepeated(t *testing.T) {
	t.Parallel()
	s, err := Start()
	require.NoError(t, err)
	conn, err := net.Dial("tcp", s.broker.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write(frames(hello()))
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 4))
	require.NoError(t, err)
	s.Close()
	s.Close()
	_, err = io.Copy(io.Discard, conn)
	require.NoError(t, err, "the connection was not closed normally")
	_, err = http.Get(s.AdminURL() + "/admin/v2/brokers/health")
	require.Error(t, err)
}

// %2B in a path is a plus.
func TestPlusInAPathOfTheAdminAPIIsABlank(t *testing.T) {
	s := NewServer(t)
	for _, path := range []string{"a+b", "a%2Bb"} {
		r, err := http.NewRequest(http.MethodPut, s.AdminURL()+"/admin/v2/persistent/public/default/"+path, nil)
		require.NoError(t, err)
		r.Close = true
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusNoContent, resp.StatusCode)
	}
	require.Equal(t, []string{"persistent://public/default/a b", "persistent://public/default/a+b"}, s.Topics())
}

func TestClientMayLookTopicsUpByTheAdminURL(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	c := newClient(t, s.AdminURL()) // the client looks topics up by HTTP
	k := subscribe(t, c, pulsar.ConsumerOptions{Topic: "t", SubscriptionName: "s"})
	send(t, newProducer(t, c, pulsar.ProducerOptions{Topic: "t"}), "0")
	receive(t, k)
}
