package pulsartest

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// Client returns a client of the server. The client is closed when the test ends. It logs nothing, since clients log
// much under faults. For a client with other options, use [Server.URL].
func (s *Server) Client(t testing.TB) pulsar.Client {
	t.Helper()
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL:    s.URL(),
		Logger: plog.NewLoggerWithSlog(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		t.Fatalf("pulsartest: %v", err)
	}
	t.Cleanup(client.Close)
	return client
}

// Publish stores messages in a topic, each as an entry of its own, and returns their IDs. It uses these fields of a
// message: Payload, Key, OrderingKey, Properties, EventTime, DeliverAt and DeliverAfter. On a partitioned topic a
// message with a key goes to the partition that pulsar-client-go would choose. Messages without a key go to each
// partition in turn. No client publishes the messages, so hooks and injected faults do not apply. Publish fails the
// test if the topic accepts no messages.
func (s *Server) Publish(t testing.TB, topic string, messages ...*pulsar.ProducerMessage) []MessageID {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []MessageID
	for i, m := range messages {
		id, err := s.publish(topic, m)
		if err != nil {
			t.Fatalf("pulsartest: message %d of %d to %s: %v", i+1, len(messages), topic, err)
		}
		ids = append(ids, id)
	}
	return ids
}

func (s *Server) publish(name string, m *pulsar.ProducerMessage) (MessageID, error) {
	if m.Value != nil {
		return MessageID{}, errors.New("field Value is set, want the encoded value in Payload")
	}
	n, err := parseTopic(name)
	if err != nil {
		return MessageID{}, err
	}
	if partitions := s.partitions[n]; partitions > 0 {
		at := s.nextName % uint64(partitions)
		if key := cmp.Or(m.OrderingKey, m.Key); key != "" {
			at = uint64(javaHash(key) % uint32(partitions))
		}
		n = n.at(int(at))
	}
	t, err := s.topic(n.String(), true)
	if err != nil {
		return MessageID{}, err
	}
	if t.terminated {
		return MessageID{}, failf(wire.TopicTerminatedError, "topic was terminated")
	}
	send := &cmdSend{Messages: 1}
	if err := send.prepare(wire.Join(s.metadata(m), m.Payload)); err != nil {
		return MessageID{}, err
	}
	t.append(send.entry)
	t.deliver(send.entry)
	return send.entry.messageID(t), nil
}

func (s *Server) metadata(m *pulsar.ProducerMessage) *wire.Metadata {
	s.nextName++
	meta := &wire.Metadata{
		ProducerName: "pulsartest",
		SequenceID:   s.nextName,
		PublishTime:  uint64(s.millis()),
		BatchSize:    1,
		Chunk:        wire.Chunk{ID: -1},
		Key:          wire.Key{Partition: m.Key},
		NullValue:    m.Payload == nil,
	}
	if m.OrderingKey != "" {
		meta.Key.Ordering = []byte(m.OrderingKey)
	}
	if !m.EventTime.IsZero() {
		meta.EventTime = uint64(m.EventTime.UnixMilli())
	}
	switch {
	case m.DeliverAfter > 0:
		meta.DeliverAt = s.millis() + m.DeliverAfter.Milliseconds()
	case !m.DeliverAt.IsZero():
		meta.DeliverAt = m.DeliverAt.UnixMilli()
	}
	for key, value := range m.Properties {
		meta.Properties = append(meta.Properties, wire.KeyValue{Key: key, Value: value})
	}
	return meta
}

// javaHash is the hash by which clients choose the partition of a key by default.
func javaHash(key string) (h uint32) {
	for _, b := range []byte(key) {
		h = 31*h + uint32(b)
	}
	return h
}

// Await calls reached with the state of a subscription, again and again, and returns the first state for which reached
// returns true. If reached returns true for none of them in time, Await fails the test and shows the states that it
// saw. While the subscription does not exist, reached gets the zero Subscription, whose Type is "" and Backlog 0. On a
// partitioned topic the state is that of all partitions together.
func (s *Server) Await(t testing.TB, topic, subscription string, within time.Duration,
	reached func(Subscription) bool) Subscription {
	t.Helper()
	const most = 8 // states that a failure shows
	var seen []string
	began, last := time.Now(), ""
	for {
		state := s.Subscription(topic, subscription)
		if reached(state) {
			return state
		}
		if line := state.line(); line != last {
			last = line
			seen = append(seen, fmt.Sprintf("%8s  %s", time.Since(began).Round(time.Millisecond), line))
			if len(seen) > most {
				seen = slices.Delete(seen, 1, 2) // keeps the first state and the last ones
			}
		}
		if time.Since(began) >= within {
			t.Fatalf("pulsartest: subscription %s of %s did not reach the awaited state within %v; its states were\n%s",
				subscription, topic, within, strings.Join(seen, "\n"))
		}
		time.Sleep(min(time.Millisecond, max(within-time.Since(began), 0)))
	}
}

// line returns the whole state in one line.
func (s *Subscription) line() string {
	if s.Type == "" {
		return "no such subscription"
	}
	var line strings.Builder
	line.WriteString(fmt.Sprintf("%s, backlog %d, unacked %d, delayed %d, delivered %d, redelivered %d", s.Type,
		s.Backlog, s.Unacked, s.Delayed,
		s.Delivered, s.Redelivered))
	for _, c := range s.Consumers {
		line.WriteString(fmt.Sprintf("; consumer %s: permits %d, unacked %d, delivered %d", c.Name, c.Permits,
			c.Unacked, c.Delivered))
	}
	return line.String()
}
