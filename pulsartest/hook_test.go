package pulsartest

import (
	"context"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

// on returns a hook whose verdict is v for commands of one type, and otherwise Pass.
func on(command string, v Verdict) func(Command) Verdict {
	return func(c Command) Verdict {
		if c.Type == command {
			return v
		}
		return Pass
	}
}

func TestHookSeesCommandsOfBothSidesAndMayDropThem(t *testing.T) {
	t.Parallel()
	seen := make(chan Command, 1000)
	s := NewServer(t)
	s.SetHook(func(c Command) Verdict {
		select {
		case seen <- c:
		default:
		}
		s.Subscription("t", "s") // a hook may call the server's methods
		if c.Type == "ACK" {
			return Drop
		}
		return Pass
	})
	c := newClient(t, s.URL())
	k := subscribe(t, c, pulsar.ConsumerOptions{Topic: "t", SubscriptionName: "s", Name: "me", Type: pulsar.Shared,
		NackRedeliveryDelay: 20 * time.Millisecond})
	p := newProducer(t, c, pulsar.ProducerOptions{Topic: "t", Name: "producer"})
	id := send(t, p, "0")
	m := receive(t, k)
	k.Nack(m)
	require.NoError(t, k.Ack(receive(t, k)))
	want := map[string]func(Command) bool{
		"CONNECT":   func(c Command) bool { return !c.FromBroker && c.Connection != "" },
		"CONNECTED": func(c Command) bool { return c.FromBroker },
		"LOOKUP":    func(c Command) bool { return c.Topic == "persistent://public/default/t" },
		"SUBSCRIBE": func(c Command) bool { return c.Subscription == "s" && c.Consumer == "me" },
		"FLOW":      func(c Command) bool { return c.Permits > 0 },
		"SEND":      func(c Command) bool { return c.Producer == "producer" },
		"MESSAGE":   func(c Command) bool { return c.RedeliveryCount == 1 && c.IDs[0].Entry == id.EntryID() },
		"REDELIVER_UNACKNOWLEDGED_MESSAGES": func(c Command) bool {
			return c.Consumer == "me" && c.Topic == "persistent://public/default/t"
		},
		"ACK": func(c Command) bool { return len(c.IDs) == 1 && !c.Cumulative },
	}
	for len(want) > 0 {
		select {
		case c := <-seen:
			if f := want[c.Type]; f != nil && f(c) {
				delete(want, c.Type)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("never seen: %v", want)
		}
	}
	require.Equal(t, 1, s.Subscription("t", "s").Backlog, "the dropped ack took effect")
}

func TestHookMayCloseAConnection(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	_, k, p := newPair(t, s)
	send(t, p, "0")
	m := receive(t, k)
	s.SetHook(on("ACK", Disconnect))
	require.Error(t, k.Ack(m))
	s.SetHook(nil)
	require.NoError(t, k.Ack(receive(t, k)))
}

func TestHookMayFailCommandsInTheBrokersPlace(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	c, k, p := newPair(t, s)
	s.SetHook(on("SEND", Fail("TopicTerminatedError", "no more")))
	_, err := trySend(p, "0")
	require.Error(t, err)
	require.Empty(t, s.Messages("t"))
	s.SetHook(nil)
	s.Publish(t, "t", &pulsar.ProducerMessage{Payload: []byte("1")})
	m := receive(t, k)
	s.SetHook(on("ACK", Fail("PersistenceError", "the disk is full")))
	require.ErrorContains(t, k.Ack(m), "the disk is full")
	require.Equal(t, 1, s.Subscription("t", "s").Backlog)
	for _, command := range []string{"SUBSCRIBE", "LOOKUP", "PARTITIONED_METADATA"} {
		s.SetHook(on(command, Fail("AuthorizationError", "not you")))
		_, err := c.Subscribe(pulsar.ConsumerOptions{Topic: "t2", SubscriptionName: "s"})
		require.ErrorContains(t, err, "AuthorizationError", command)
	}
	s.SetHook(on("MESSAGE", Fail("AuthorizationError", "not you"))) // passes, since the broker sends MESSAGE
	s.Publish(t, "t", &pulsar.ProducerMessage{Payload: []byte("2")})
	require.Equal(t, "2", string(receive(t, k).Payload()))
}

func TestHookMayConfirmCommandsInTheBrokersPlace(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	c, k, p := newPair(t, s)
	s.SetHook(on("SEND", Confirm))
	send(t, p, "0")
	require.Empty(t, s.Messages("t"))
	s.SetHook(on("ACK", Confirm))
	s.Publish(t, "t", &pulsar.ProducerMessage{Payload: []byte("1")})
	require.NoError(t, k.Ack(receive(t, k)))
	require.Equal(t, 1, s.Subscription("t", "s").Backlog)
	s.SetHook(on("REDELIVER_UNACKNOWLEDGED_MESSAGES", Confirm)) // lost, since this command has no answer
	s.Unload("t")
	k.Nack(receive(t, k))
	s.SetHook(on("LOOKUP", Confirm)) // passes, since the answer needs data
	subscribe(t, c, pulsar.ConsumerOptions{Topic: "t2", SubscriptionName: "s"})
}

func TestHookMayDelayCommandsOfEitherSide(t *testing.T) {
	t.Parallel()
	const delay = 150 * time.Millisecond
	s := NewServer(t)
	_, k, p := newPair(t, s)
	for _, command := range []string{"SEND", "MESSAGE", "SEND_RECEIPT"} {
		s.SetHook(on(command, Pass.After(delay)))
		began := time.Now()
		send(t, p, command)
		require.Equal(t, command, string(receive(t, k).Payload()))
		require.GreaterOrEqual(t, time.Since(began), delay, command)
	}
	s.SetHook(on("MESSAGE", Pass.After(delay)))
	began := time.Now() // messages are delayed side by side, not one after another
	for range 20 {
		s.Publish(t, "t", &pulsar.ProducerMessage{Payload: []byte("m")})
	}
	for range 20 {
		receive(t, k)
	}
	require.Less(t, time.Since(began), 10*delay)
	s.SetHook(on("ACK", Fail("PersistenceError", "late").After(delay)))
	s.Publish(t, "t", &pulsar.ProducerMessage{Payload: []byte("m")})
	m := receive(t, k)
	began = time.Now()
	require.ErrorContains(t, k.Ack(m), "late")
	require.GreaterOrEqual(t, time.Since(began), delay)
}

// A delay must not keep a server from closing.
func TestHookDelaysEndWithTheServer(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	_, _, p := newPair(t, s)
	s.SetHook(func(c Command) Verdict {
		if c.Type == "SEND" || c.Type == "SEND_RECEIPT" {
			return Pass.After(time.Hour)
		}
		return Pass
	})
	p.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: []byte("0")}, nil)
	began := time.Now()
	s.Close()
	require.Less(t, time.Since(began), 10*time.Second)
}

func TestInjectedVerdictsApplyToCommandsThatTheHookPasses(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	_, k, p := newPair(t, s)
	s.Inject("SEND", "t", 1, Fail("TopicTerminatedError", "injected"))
	s.Inject("SEND", "other", -1, Fail("TopicTerminatedError", "injected"))
	s.SetHook(on("SEND", Confirm))
	send(t, p, "confirmed by the hook")
	s.SetHook(nil)
	_, err := trySend(p, "failed after it")
	require.Error(t, err)
	s.Inject("", "", -1, Pass.After(50*time.Millisecond))
	s.Inject("ACK_RESPONSE", "", 1, Drop)
	s.Publish(t, "t", &pulsar.ProducerMessage{Payload: []byte("0")})
	began := time.Now()
	m := receive(t, k)
	s.Publish(t, "t", &pulsar.ProducerMessage{Payload: []byte("1")})
	receive(t, k)
	require.GreaterOrEqual(t, time.Since(began), 50*time.Millisecond)
	go func() { _ = k.Ack(m) }() // Ack gets no answer
	s.Await(t, "t", "s", 5*time.Second, func(s Subscription) bool { return s.Backlog == 1 })
	s.Inject("", "", 0, Pass)
	s.Inject("SEND", "other", 0, Pass)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rules {
		require.Contains(t, []string{"SEND", "ACK_RESPONSE"}, r.command)
	}
}
