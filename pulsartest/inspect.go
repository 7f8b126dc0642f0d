package pulsartest

import (
	"encoding/base64"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// Subscription is the state of a subscription at one moment. On a partitioned topic, it is the state on all partitions
// together. The zero value means that the subscription does not exist.
type Subscription struct {
	Type        string // Exclusive, Shared, Failover, Key_Shared, or None before the first consumer
	Backlog     int    // entries not acknowledged
	Unacked     int    // messages sent and not acknowledged; counted on Shared and Key_Shared only
	Delayed     int    // entries that are not due yet, as far as the broker has read
	Delivered   int    // messages sent since the topic's last unload, redeliveries included
	Redelivered int    // of Delivered, those with a redelivery count above 0

	// RedeliveryCounts has the counts of the entries whose count is above 0.
	RedeliveryCounts map[MessageID]uint32
	// Consumers are in the order in which the broker serves them.
	Consumers []Consumer
}

// Consumer is the state of a consumer at one moment.
type Consumer struct {
	Name      string // pulsar.ConsumerOptions.Name, or the name that the broker gave
	Topic     string // full name, with the partition
	Active    bool   // false for the inactive consumers of a Failover subscription
	Permits   int    // how many more messages the broker may send; may be below 0 after a batch
	Unacked   int    // messages sent and not acknowledged
	Delivered int    // messages sent, redeliveries included
}

// Subscription returns the state of a subscription.
func (s *Server) Subscription(topic, name string) Subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	var state Subscription
	for _, t := range s.matching(topic) {
		sub, ok := t.subs[name]
		if !ok {
			continue
		}
		if state.RedeliveryCounts == nil {
			state.RedeliveryCounts = map[MessageID]uint32{}
		}
		state.Type = sub.title()
		state.Backlog += sub.cursor.backlog(len(t.log))
		state.Unacked += sub.unacked
		state.Delayed += len(sub.delayed.heap)
		state.Delivered += sub.gone.sent
		state.Redelivered += sub.gone.redelivered
		for offset, count := range sub.counts {
			state.RedeliveryCounts[t.log[offset].messageID(t)] = count
		}
		for _, c := range sub.consumers {
			state.Delivered += c.sent
			state.Redelivered += c.redelivered
			state.Consumers = append(state.Consumers, Consumer{Name: c.name, Topic: t.name.String(),
				Active: sub.individual() || c == sub.active, Permits: c.permits, Unacked: c.unacked, Delivered: c.sent})
		}
	}
	return state
}

// Topics returns the full names of all topics, in order. A partitioned topic is listed by its partitions.
func (s *Server) Topics() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for n := range s.topics {
		names = append(names, n.String())
	}
	slices.Sort(names)
	return names
}

// Subscriptions returns the names of the topic's subscriptions, in order.
func (s *Server) Subscriptions(topic string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := map[string]bool{}
	for _, t := range s.matching(topic) {
		for name := range t.subs {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Message is a message as it is stored.
type Message struct {
	ID          MessageID         // of the message in its batch
	Producer    string            // the producer's name
	SequenceID  uint64            // the producer's count
	PublishTime time.Time         // by the producer's clock
	EventTime   time.Time         // zero if the message has none
	DeliverAt   time.Time         // zero if the message is not delayed
	Key         string            // decoded
	OrderingKey []byte            // nil if the message has none
	Properties  map[string]string // empty if the message has none
	Payload     []byte            // decompressed, unless Opaque
	// Opaque says that Payload is as the client sent it, because it is encrypted, or compressed with another codec than
	// LZ4 and zlib. An opaque batch is one Message.
	Opaque    bool
	BatchSize int // messages in the entry
	Chunks    int // entries of the whole message; 0 if the message is not chunked
}

// Messages returns all messages ever stored in a topic, acknowledged or not, in order, partition by partition. A
// chunked message is one Message for each chunk.
func (s *Server) Messages(topic string) []Message {
	type stored struct {
		*entry
		id MessageID
	}
	s.mu.Lock()
	var entries []stored
	for _, t := range s.matching(topic) {
		for _, e := range t.log {
			entries = append(entries, stored{e, e.messageID(t)})
		}
	}
	s.mu.Unlock()
	var all []Message
	for _, e := range entries {
		all = append(all, e.unpack(e.id)...)
	}
	return all
}

func (e *entry) messageID(t *topic) MessageID {
	return MessageID{int64(e.ledger), int64(e.id), int(t.name.partition), -1}
}

// unpack returns the entry's messages.
func (e *entry) unpack(id MessageID) []Message {
	raw, payload, err := wire.Split(e.data)
	if err != nil {
		return nil // cannot happen: the entry was checked when it came
	}
	meta, err := wire.ParseMetadata(raw)
	if err != nil {
		return nil
	}
	m := Message{
		ID:          id,
		Producer:    meta.ProducerName,
		SequenceID:  meta.SequenceID,
		PublishTime: time.UnixMilli(int64(meta.PublishTime)),
		EventTime:   millis(int64(meta.EventTime)),
		DeliverAt:   millis(meta.DeliverAt),
		Key:         plainKey(meta.Key.Partition, meta.Key.IsBase64),
		OrderingKey: meta.Key.Ordering,
		Properties:  properties(meta.Properties),
		BatchSize:   e.messages,
		Chunks:      int(meta.Chunk.Total),
	}
	plain, ok := decompress(&meta, payload)
	if meta.Encryption != "" || !ok {
		m.Payload, m.Opaque = payload, true
		return []Message{m}
	}
	m.Payload = plain
	if !e.batch {
		return []Message{m}
	}
	return m.split(plain, e.messages)
}

// split returns the messages of a batch. m describes the batch as a whole.
func (m Message) split(payload []byte, n int) []Message {
	var all []Message
	for i := range n {
		if len(payload) < 4 {
			break
		}
		size := uint64(binary.BigEndian.Uint32(payload))
		if size > uint64(len(payload)-4) {
			break
		}
		meta, err := wire.ParseBatchMetadata(payload[4 : 4+size])
		payload = payload[4+size:]
		if err != nil || meta.Size < 0 || int(meta.Size) > len(payload) {
			break
		}
		one := m
		one.ID.BatchIndex = i
		one.SequenceID = meta.SequenceID
		one.EventTime = millis(int64(meta.EventTime))
		one.Key = plainKey(meta.Key, meta.KeyIsBase64)
		one.OrderingKey = meta.OrderingKey
		one.Properties = properties(meta.Properties)
		one.Payload = payload[:meta.Size]
		payload = payload[meta.Size:]
		all = append(all, one)
	}
	return all
}

func millis(ms int64) time.Time {
	if ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

func plainKey(key string, isBase64 bool) string {
	if b, err := base64.StdEncoding.DecodeString(key); isBase64 && err == nil {
		return string(b)
	}
	return key
}

func properties(kvs []wire.KeyValue) map[string]string {
	m := make(map[string]string, len(kvs))
	for _, kv := range kvs {
		m[kv.Key] = kv.Value
	}
	return m
}
