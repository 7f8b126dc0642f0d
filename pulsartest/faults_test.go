package pulsartest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/logtest"
)

// receiveNothing checks that no message comes for a while.
func receiveNothing(t testing.TB, c pulsar.Consumer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	m, err := c.Receive(ctx)
	if err == nil {
		t.Fatalf("received %q", m.Payload())
	}
}

// newPair returns a client with a Shared consumer of topic t (subscription s) and a producer of topic t.
func newPair(t testing.TB, s *Server) (pulsar.Client, pulsar.Consumer, pulsar.Producer) {
	c := newClient(t, s.URL())
	k := subscribe(t, c, pulsar.ConsumerOptions{Topic: "t", SubscriptionName: "s", Type: pulsar.Shared,
		AckWithResponse: true})
	return c, k, newProducer(t, c,
		pulsar.ProducerOptions{Topic: "t", DisableBatching: true, SendTimeout: 500 * time.Millisecond})
}

// Each fault removes a client's consumers, and the client connects again by itself. Unacknowledged messages must then
// be delivered again, with redelivery count 0.
func TestClientsReconnectAfterFaults(t *testing.T) {
	for name, fault := range map[string]func(s *Server){
		"DropConnections": func(s *Server) { s.DropConnections() },
		"Unload":          func(s *Server) { s.Unload("t") },
		"CloseConsumers":  func(s *Server) { s.CloseConsumers("t", "s") },
		"RefuseConnections": func(s *Server) {
			s.RefuseConnections(true)
			s.DropConnections()
			time.Sleep(50 * time.Millisecond)
			if len(s.Subscription("t", "s").Consumers) > 0 {
				panic("a client is connected")
			}
			s.RefuseConnections(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := NewServer(t)
			_, k, p := newPair(t, s)
			send(t, p, "0")
			send(t, p, "1")
			require.NoError(t, k.Ack(receive(t, k)))
			require.Equal(t, "1", string(receive(t, k).Payload()))
			require.Equal(t, 1, s.Subscription("t", "s").Unacked)
			fault(s)
			m := receive(t, k)
			require.Equal(t, "1", string(m.Payload()))
			require.Zero(t, m.RedeliveryCount())
			require.NoError(t, k.Ack(m))
			require.Zero(t, s.Subscription("t", "s").Backlog)
		})
	}
}

func TestDropConnectionsRemovesConsumersAtOnce(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	_, k, p := newPair(t, s)
	send(t, p, "0")
	receive(t, k)
	for range 5 {
		newPair(t, s) // these consumers do not get the first consumer's message
	}
	s.RefuseConnections(true)
	s.DropConnections()
	sub := s.Subscription("t", "s")
	require.Empty(t, sub.Consumers)
	require.Zero(t, sub.Unacked)
	require.Equal(t, 1, sub.Backlog)
	require.Equal(t, 1, sub.Delivered)
	s.RefuseConnections(false)
}

func TestPausedTopicDeliversNothingUntilThePauseEnds(t *testing.T) {
	t.Parallel()
	for _, topic := range []string{"", "t", "persistent://public/default/t"} {
		s := NewServer(t)
		_, k, p := newPair(t, s)
		s.PauseDispatch(topic, true)
		send(t, p, "0")
		receiveNothing(t, k)
		s.PauseDispatch("t2", false)
		receiveNothing(t, k)
		s.PauseDispatch(topic, false)
		receive(t, k)
	}
}

func TestInjectFailsSends(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	_, _, p := newPair(t, s)
	s.Inject("SEND", "t", 1, Fail("TopicTerminatedError", "injected"))
	_, err := trySend(p, "0")
	require.Error(t, err)
	require.Empty(t, s.Messages("t"))
}

func TestClientSendsAgainAfterInjectedErrors(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	_, k, p := newPair(t, s)
	s.Inject("SEND", "", 2, Fail("PersistenceError", "injected"))
	send(t, p, "1")
	require.Equal(t, "1", string(receive(t, k).Payload()))
	require.Len(t, s.Messages("t"), 1)
}

func TestInjectLosesSends(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	_, k, p := newPair(t, s)
	s.Inject("SEND", "t", 1, Drop)
	_, err := trySend(p, "0")
	require.ErrorIs(t, err, pulsar.ErrSendTimeout)
	require.Empty(t, s.Messages("t"))
	send(t, p, "1")
	require.Equal(t, "1", string(receive(t, k).Payload()))
	s.Inject("SEND", "t", -1, Drop)
	s.Inject("SEND", "t", 0, Pass)
	send(t, p, "2")
}

func TestInjectFailsProducersAndConsumers(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	require.NoError(t, s.CreatePartitionedTopic("t", 2))
	c := newClient(t, s.URL())
	s.Inject("PRODUCER", "t", 1, Fail("AuthorizationError", "injected"))
	s.Inject("SUBSCRIBE", "t", 1, Fail("AuthorizationError", "injected"))
	_, err := c.CreateProducer(pulsar.ProducerOptions{Topic: "t"})
	require.ErrorContains(t, err, "injected")
	_, err = c.Subscribe(pulsar.ConsumerOptions{Topic: "t", SubscriptionName: "s"})
	require.ErrorContains(t, err, "injected")
	newProducer(t, c, pulsar.ProducerOptions{Topic: "t"})
	subscribe(t, c, pulsar.ConsumerOptions{Topic: "t", SubscriptionName: "s"})
}

func TestInjectedDelayKeepsTheOrderOfMessages(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	_, k, p := newPair(t, s)
	s.Inject("", "", -1, Pass.After(100*time.Millisecond))
	began := time.Now()
	for i := range 3 {
		p.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: fmt.Append(nil, i)}, nil)
	}
	for i := range 3 {
		require.Equal(t, fmt.Sprint(i), string(receive(t, k).Payload()))
	}
	require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond)
	require.Less(t, time.Since(began), 5*time.Second)
	s.Inject("", "", 0, Pass)
	send(t, p, "3")
}

func TestInjectLosesAckResponses(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	c, err := pulsar.NewClient(pulsar.ClientOptions{URL: s.URL(), Logger: logtest.Client(t),
		OperationTimeout: 300 * time.Millisecond})
	require.NoError(t, err)
	defer c.Close()
	k := subscribe(t, c, pulsar.ConsumerOptions{Topic: "t", SubscriptionName: "s", Type: pulsar.Shared,
		AckWithResponse: true})
	p := newProducer(t, c, pulsar.ProducerOptions{Topic: "t"})
	send(t, p, "0")
	send(t, p, "1")
	s.Inject("ACK_RESPONSE", "", 1, Drop)
	require.ErrorContains(t, k.Ack(receive(t, k)), "timed out")
	require.Equal(t, 1, s.Subscription("t", "s").Backlog)
	require.NoError(t, k.Ack(receive(t, k)))
	require.Zero(t, s.Subscription("t", "s").Backlog)
}

// Without a panic, a fault with a misspelled name would silently never happen.
func TestInjectAndFailPanicAtUnknownNames(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	require.PanicsWithValue(t,
		`pulsartest: Inject of command "SENDS", want a command of Pulsar's protocol, such as SEND`,
		func() { s.Inject("SENDS", "", 1, Drop) })
	for call, fault := range map[string]func(topic string){
		"Inject":         func(topic string) { s.Inject("SEND", topic, 1, Drop) },
		"Unload":         s.Unload,
		"Terminate":      s.Terminate,
		"CloseConsumers": func(topic string) { s.CloseConsumers(topic, "s") },
		"PauseDispatch":  func(topic string) { s.PauseDispatch(topic, true) },
	} {
		require.PanicsWithValue(t, "pulsartest: "+call+`: invalid topic name "http://t": no such domain`,
			func() { fault("http://t") })
	}
	require.PanicsWithValue(t, `pulsartest: Fail with code "Busy", want a ServerError of Pulsar's protocol, such as PersistenceError`, func() { Fail("Busy", "") })
}

func TestTerminatedTopicRefusesProducersAndDeliversItsMessages(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	c, k, p := newPair(t, s)
	send(t, p, "0")
	s.Terminate("t")
	// a new producer, since p's client may lose messages until it has learned that p is closed
	_, err := c.CreateProducer(pulsar.ProducerOptions{Topic: "t"})
	require.ErrorContains(t, err, "TopicTerminated")
	receive(t, k)
}
