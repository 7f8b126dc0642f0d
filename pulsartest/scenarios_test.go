package pulsartest

import (
	"math"
	"time"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

type scenario struct {
	name string
	run  func(*script)
}

// ready is a connection with producer 1.
func ready(s *script) *raw {
	r := s.dial("a")
	r.produce(s.topic)
	return r
}

var scenarios = []scenario{
	{"redelivery-counts", func(s *script) {
		r := ready(s)
		r.subscribe(1, wire.Shared)
		var ids []wire.MessageID
		for _, p := range []string{"0", "1", "2", "3", "4"} {
			ids = append(ids, r.publish(p))
		}
		r.flow(1, 100)
		r.drain()
		unknown := ids[0]
		unknown.Entry = 77
		r.redeliver(1, ids[3], ids[1], ids[3], unknown)
		r.drain()
		r.redeliver(1, ids[1])
		r.drain()
		r.ack(1, ids[1])
		r.redeliver(1, ids[1])
		r.drain()
		r.redeliver(1)
		r.drain()
	}},
	{"permits", func(s *script) {
		r := ready(s)
		r.subscribe(1, wire.Shared)
		var ids []wire.MessageID
		for _, p := range []string{"0", "1", "2", "3", "4"} {
			ids = append(ids, r.publish(p))
		}
		r.flow(1, 2)
		r.drain()
		r.redeliver(1, ids[0], ids[1])
		r.drain()
		r.flow(1, 1)
		r.drain()
		r.flow(1, 2)
		r.drain()
		r.flow(1, 10)
		r.drain()
	}},
	{"permits-of-batches", func(s *script) {
		r := ready(s)
		r.subscribe(1, wire.Shared)
		first := r.batch(5)
		r.batch(5)
		r.publish("single")
		r.flow(1, 1) // the whole batch, 4 below zero
		r.drain()
		r.flow(1, 4)
		r.drain()
		r.flow(1, 1)
		r.drain()
		r.ack(1, left(first, 0b11000))
		r.flow(1, 4) // up to 0
		r.drain()
		r.flow(1, 2)
		r.drain()
		r.redeliver(1, first) // costs 2
		r.drain()
		r.publish("one more")
		r.drain()
		r.flow(1, 1)
		r.drain()
		r.flow(1, 1)
		r.drain()
	}},
	{"batch-partial-acks", func(s *script) {
		r := ready(s)
		r.subscribe(1, wire.Shared)
		id := r.batch(5)
		r.flow(1, 1000)
		r.drain()
		r.ack(1, left(id, 0b11100))
		r.redeliver(1, id)
		r.drain()
		r.redeliver(1, id)
		r.drain()
		r.ack(1, left(id, 0b11011)) // its count starts anew
		r.redeliver(1, id)
		r.drain()
		r.redeliver(1, id)
		r.drain()
		r.ack(1, left(id, 0b10111))
		r.ack(1, left(id, 0b01111))
		r.redeliver(1, id)
		r.drain()
		r.redeliver(1)
		r.drain()
		r.close()
		r = s.dial("b")
		r.subscribe(1, wire.Shared)
		r.flow(1, 10)
		r.drain()
	}},
	{"batch-acks-survive-a-reconnect", func(s *script) {
		r := ready(s)
		r.subscribe(1, wire.Shared)
		id := r.batch(3)
		r.flow(1, 1000)
		r.drain()
		r.ack(1, left(id, 0b101))
		r.drain()
		r.close()
		r = s.dial("b")
		r.subscribe(1, wire.Shared)
		r.flow(1, 10)
		r.drain()
	}},
	{"cumulative-acks", func(s *script) {
		r := ready(s)
		r.subscribe(1, wire.Exclusive)
		var ids []wire.MessageID
		for _, p := range []string{"0", "1", "2", "3"} {
			ids = append(ids, r.publish(p))
		}
		ids = append(ids, r.batch(4))
		r.publish("5")
		r.flow(1, 100)
		r.drain()
		r.ackUpTo(1, ids[2])
		r.redeliver(1)
		r.drain()
		r.ackUpTo(1, ids[0])
		r.redeliver(1)
		r.drain()
		r.ackUpTo(1, left(ids[4], 0b1100))
		r.redeliver(1)
		r.drain()
		r.ackUpTo(1, ids[4])
		r.redeliver(1)
		r.drain()
	}},
	{"cumulative-ack-on-shared", func(s *script) {
		r := ready(s)
		r.subscribe(1, wire.Shared)
		r.publish("0")
		id := r.publish("1")
		r.flow(1, 100)
		r.drain()
		r.send(&wire.Ack{Consumer: 1, AckType: wire.Cumulative, IDs: []wire.MessageID{id}, Request: r.request()}, nil)
		r.drain()
		r.redeliver(1)
		r.drain()
	}},
	{"exclusive-rewinds", func(s *script) {
		r := ready(s)
		r.subscribe(1, wire.Exclusive)
		var ids []wire.MessageID
		for _, p := range []string{"0", "1", "2", "3"} {
			ids = append(ids, r.publish(p))
		}
		r.flow(1, 100)
		r.drain()
		r.ack(1, ids[1])
		r.redeliver(1, ids[2])
		r.drain()
		r.redeliver(1, ids[1])
		r.drain()
		r.subscribe(2, wire.Exclusive)
		r.subscribe(3, wire.Shared)
	}},
	{"lost-connection-with-survivor", func(s *script) {
		p := ready(s)
		a, b := s.dial("a"), s.dial("b")
		a.subscribe(1, wire.Shared)
		var ids []wire.MessageID
		for _, text := range []string{"0", "1", "2"} {
			ids = append(ids, p.publish(text))
		}
		a.flow(1, 100)
		a.drain()
		a.redeliver(1, ids[1])
		a.drain()
		a.redeliver(1, ids[1], ids[2])
		a.drain()
		b.subscribe(2, wire.Shared)
		b.flow(2, 100)
		b.drain()
		a.close()
		b.drain()
		b.redeliver(2, ids[1])
		b.drain()
		b.close()
		c := s.dial("c")
		c.subscribe(3, wire.Shared)
		c.flow(3, 100)
		c.drain()
		c.redeliver(3, ids[1])
		c.drain()
	}},
	{"ack-of-another-consumers-message", func(s *script) {
		p := ready(s)
		a, b := s.dial("a"), s.dial("b")
		a.subscribe(1, wire.Shared)
		id := p.publish("0")
		other := p.publish("1")
		a.flow(1, 100)
		a.drain()
		b.subscribe(2, wire.Shared)
		b.ack(2, id)
		b.redeliver(2, other)
		b.flow(2, 10)
		b.drain()
		a.redeliver(1)
		a.drain()
		b.drain()
		a.close()
		b.drain()
	}},
	{"seek", func(s *script) {
		r := ready(s)
		r.subscribe(1, wire.Shared)
		var ids []wire.MessageID
		for _, p := range []string{"0", "1", "2"} {
			ids = append(ids, r.publish(p))
		}
		ids = append(ids, r.batch(3))
		time.Sleep(20 * time.Millisecond)
		middle := uint64(time.Now().UnixMilli())
		time.Sleep(20 * time.Millisecond)
		r.publish("4")
		r.flow(1, 100)
		r.drain()
		r.redeliver(1, ids[1])
		r.drain()
		for _, id := range ids {
			r.ack(1, id)
		}
		seek := func(m *wire.Seek) {
			m.Consumer, m.Request = 1, r.request()
			r.send(m, nil)
			r.drain()
			r.subscribe(1, wire.Shared)
			r.flow(1, 100)
			r.drain()
		}
		seek(&wire.Seek{ID: &ids[1]})
		inBatch := ids[3]
		inBatch.BatchIndex = 1
		seek(&wire.Seek{ID: &inBatch})
		seek(&wire.Seek{PublishTime: middle})
		seek(&wire.Seek{PublishTime: 1})
		seek(&wire.Seek{ID: &wire.MessageID{Ledger: math.MaxUint64, Entry: math.MaxUint64, Partition: -1, BatchIndex: -1}})
		seek(&wire.Seek{ID: &wire.MessageID{Ledger: math.MaxInt64, Entry: math.MaxInt64, Partition: -1, BatchIndex: -1}})
		seek(&wire.Seek{PublishTime: uint64(time.Now().UnixMilli()) + 100_000})
		r.send(&wire.Seek{Consumer: 9, Request: r.request(), ID: &ids[0]}, nil)
		r.drain()
	}},
	{"readers", func(s *script) {
		r := ready(s)
		var ids []wire.MessageID
		for _, p := range []string{"0", "1", "2"} {
			ids = append(ids, r.publish(p))
		}
		ids = append(ids, r.batch(3))
		r.publish("4")
		read := func(consumer uint64, start *wire.MessageID) {
			r.subscribe(consumer, wire.Exclusive, func(m *wire.Subscribe) {
				m.Subscription, m.Durable, m.Start = "reader-"+string(rune('a'+consumer)), false, start
			})
			r.flow(consumer, 100)
			r.drain()
		}
		read(1, &ids[0])
		read(2, &wire.MessageID{Ledger: math.MaxUint64, Entry: math.MaxUint64, Partition: -1, BatchIndex: -1})
		read(3, &wire.MessageID{Ledger: math.MaxInt64, Entry: math.MaxInt64, Partition: -1, BatchIndex: -1})
		inBatch := ids[3]
		inBatch.BatchIndex = 0
		read(4, &inBatch)
		read(5, &ids[3])
		r.send(&wire.GetLastMessageID{Consumer: 1, Request: r.request()}, nil)
		r.drain()
		r.publish("5")
		r.drain()
	}},
	{"last-message-id", func(s *script) {
		r := ready(s)
		r.subscribe(1, wire.Shared)
		last := func() {
			r.send(&wire.GetLastMessageID{Consumer: 1, Request: r.request()}, nil)
			r.drain()
		}
		last()
		id := r.publish("0")
		last()
		r.ack(1, id)
		r.drain()
		last()
		r.batch(3)
		last()
	}},
	{"failover", func(s *script) {
		p := ready(s)
		p.publish("0")
		p.publish("1")
		one, two, three := s.dial("one"), s.dial("two"), s.dial("three")
		named := func(name string) func(*wire.Subscribe) { return func(m *wire.Subscribe) { m.Name = name } }
		// A partition chooses by name; the ring of other topics depends on
		// the topic's name, which differs here.
		s.topic += "-partition-1"
		p = ready(s)
		first := p.publish("0")
		p.publish("1")
		one.subscribe(1, wire.Failover, named("b"))
		one.flow(1, 100)
		time.Sleep(1200 * time.Millisecond)
		one.drain()
		two.subscribe(2, wire.Failover, named("c"))
		two.flow(2, 100)
		time.Sleep(1200 * time.Millisecond)
		one.drain()
		two.drain()
		three.subscribe(3, wire.Failover, named("a"))
		three.flow(3, 100)
		time.Sleep(1200 * time.Millisecond)
		one.drain()
		two.drain()
		three.drain()
		one.ack(1, first)
		two.redeliver(2)
		one.redeliver(1)
		one.drain()
		one.close()
		time.Sleep(1200 * time.Millisecond)
		two.drain()
		three.drain()
		s.topic = s.topic[:len(s.topic)-len("-partition-1")]
	}},
	{"failover-priorities", func(s *script) {
		s.topic += "-partition-0"
		p := ready(s)
		p.publish("0")
		one, two := s.dial("one"), s.dial("two")
		level := func(n int32) func(*wire.Subscribe) { return func(m *wire.Subscribe) { m.Priority = n } }
		one.subscribe(1, wire.Failover, level(1))
		one.flow(1, 100)
		time.Sleep(1200 * time.Millisecond)
		one.drain()
		two.subscribe(2, wire.Failover, level(0))
		two.flow(2, 100)
		time.Sleep(1200 * time.Millisecond)
		one.drain()
		two.drain()
		s.topic = s.topic[:len(s.topic)-len("-partition-0")]
	}},
	{"key-shared", func(s *script) {
		p := ready(s)
		a, b := s.dial("a"), s.dial("b")
		a.subscribe(1, wire.KeyShared, func(m *wire.Subscribe) { m.KeyShared = &wire.KeySharedMeta{} })
		b.subscribe(2, wire.KeyShared, func(m *wire.Subscribe) { m.KeyShared = &wire.KeySharedMeta{} })
		a.flow(1, 100)
		b.flow(2, 100)
		var ids []wire.MessageID
		for i := range 24 {
			key := string(rune('a' + i%8))
			ids = append(ids, p.publish(key, func(m *wire.Metadata) { m.PartitionKey = key }))
		}
		gotA := a.drain()
		gotB := b.drain()
		a.redeliver(1, gotA...)
		a.drain()
		b.redeliver(2, gotB[0])
		b.drain()
		a.close() // what it had goes to b
		b.drain()
		for _, id := range ids {
			b.ack(2, id)
		}
		p.publish("z", func(m *wire.Metadata) { m.OrderingKey = []byte("z") })
		b.drain()
	}},
	{"key-shared-waits-for-the-old-owner", func(s *script) {
		p := ready(s)
		a, b := s.dial("a"), s.dial("b")
		a.subscribe(1, wire.KeyShared)
		a.flow(1, 100)
		a.drain()
		var ids []wire.MessageID
		key := func(i int) func(*wire.Metadata) {
			return func(m *wire.Metadata) { m.PartitionKey = string(rune('a' + i)) }
		}
		for i := range 8 {
			ids = append(ids, p.publish("first", key(i)))
		}
		a.drain()
		b.subscribe(2, wire.KeyShared)
		b.flow(2, 100)
		b.drain()
		for i := range 8 {
			p.publish("second", key(i))
		}
		a.drain()
		b.drain()
		for _, id := range ids {
			a.ack(1, id)
		}
		a.drain()
		b.drain()
	}},
	{"key-shared-ranges", func(s *script) {
		p := ready(s)
		a := s.dial("a")
		half := func(from, to int32) func(*wire.Subscribe) {
			return func(m *wire.Subscribe) {
				m.KeyShared = &wire.KeySharedMeta{Mode: wire.Sticky, HashRanges: []wire.IntRange{{Start: from, End: to}}}
			}
		}
		a.subscribe(1, wire.KeyShared, half(0, 32767))
		a.subscribe(2, wire.KeyShared, half(32768, 65535))
		a.subscribe(3, wire.KeyShared, half(100, 200))
		a.flow(1, 100)
		a.flow(2, 100)
		for i := range 12 {
			p.publish("m", func(m *wire.Metadata) { m.PartitionKey = string(rune('a' + i)) })
		}
		a.drain()
	}},
	{"delayed", func(s *script) {
		r := ready(s)
		r.subscribe(1, wire.Shared)
		r.flow(1, 100)
		r.drain()
		in := func(d time.Duration) func(*wire.Metadata) {
			return func(m *wire.Metadata) { m.DeliverAt = time.Now().Add(d).UnixMilli() }
		}
		start := time.Now()
		r.publish("in 3s", in(3*time.Second))
		r.publish("in 800ms: at once", in(800*time.Millisecond))
		r.publish("at once")
		r.publish("past", in(-time.Hour))
		r.drain()
		a, ok := r.await()
		late := time.Since(start)
		r.note("in 3s, a tick more or less: %t", ok && late > 2*time.Second && late < 4200*time.Millisecond)
		if ok {
			r.held = append(r.held, a)
		}
		r.drain()
		r.send(&wire.CloseConsumer{Consumer: 1, Request: r.request()}, nil)
		r.subscribe(2, wire.Exclusive, func(m *wire.Subscribe) { m.Subscription = "other" })
		r.flow(2, 100)
		r.publish("exclusive does not wait", in(time.Hour))
		r.drain()
	}},
	{"unload-loses-batch-index-acks", func(s *script) {
		r := ready(s)
		r.subscribe(1, wire.Shared)
		r.flow(1, 100)
		r.drain()
		partly := r.batch(3)
		other := r.batch(3)
		r.publish("0")
		r.drain()
		r.ack(1, left(partly, 0b110))
		r.drain()
		r.ack(1, left(other, 0b011))
		r.drain()
		time.Sleep(time.Second)
		r.note("unload %s", s.rest("PUT", s.path(s.topic)+"/unload", ""))
		r.drain()
		r.subscribe(1, wire.Shared)
		r.flow(1, 100)
		r.drain()
	}},
	{"unload", func(s *script) {
		r := ready(s)
		r.subscribe(1, wire.Shared)
		r.flow(1, 100)
		r.drain()
		id := r.publish("0")
		acked := r.publish("1")
		partly := r.batch(2)
		r.drain()
		r.redeliver(1, id)
		r.drain()
		r.ack(1, acked, left(partly, 0b10))
		time.Sleep(r.quiet)
		r.note("unload %s", s.rest("PUT", s.path(s.topic)+"/unload", ""))
		r.drain()
		r.produce(s.topic)
		r.subscribe(1, wire.Shared)
		r.flow(1, 100)
		r.drain()
		r.note("%s", r.script.id(r.publish("2")))
		r.drain()
	}},
	{"terminate", func(s *script) {
		r := ready(s)
		r.subscribe(1, wire.Shared)
		r.flow(1, 100)
		id := r.publish("0")
		r.drain()
		r.note("terminate %s", s.rest("POST", s.path(s.topic)+"/terminate", ""))
		r.drain()
		r.send(&wire.Producer{Topic: s.topic, Producer: 2, Request: r.request(), UserProvidedName: true, TopicEpoch: wire.Absent}, nil)
		r.drain()
		r.ack(1, id)
		r.drain()
		r.close()
		r = s.dial("b")
		r.subscribe(1, wire.Shared)
		r.flow(1, 100)
		r.drain()
	}},
	{"acks-with-response", func(s *script) {
		r := ready(s)
		r.subscribe(1, wire.Shared)
		r.flow(1, 100)
		r.drain()
		id := r.publish("0")
		r.drain()
		for range 2 {
			r.send(&wire.Ack{Consumer: 1, IDs: []wire.MessageID{id}, Request: r.request()}, nil)
			r.drain()
		}
		unknown := id
		unknown.Entry = 1000
		r.send(&wire.Ack{Consumer: 1, IDs: []wire.MessageID{unknown}, Request: r.request()}, nil)
		r.drain()
		r.send(&wire.Ack{Consumer: 9, IDs: []wire.MessageID{id}, Request: r.request()}, nil)
		r.drain()
	}},
	{"errors", func(s *script) {
		r := ready(s)
		r.send(&wire.CloseConsumer{Consumer: 5, Request: r.request()}, nil)
		r.drain()
		r.send(&wire.CloseProducer{Producer: 5, Request: r.request()}, nil)
		r.drain()
		r.subscribe(1, wire.Shared)
		r.subscribe(2, wire.Shared)
		r.send(&wire.Unsubscribe{Consumer: 2, Request: r.request()}, nil)
		r.drain()
		r.subscribe(3, wire.Shared, func(m *wire.Subscribe) { m.Topic = "persistent://a/b" })
		r.send(&wire.CloseConsumer{Consumer: 2, Request: r.request()}, nil)
		r.drain()
		r.send(&wire.Unsubscribe{Consumer: 1, Request: r.request()}, nil)
		r.drain()
		r.send(&wire.CloseConsumer{Consumer: 1, Request: r.request()}, nil)
		r.drain()
		r.send(&wire.Unsubscribe{Consumer: 1, Request: r.request()}, nil)
		r.drain()
		r.send(&wire.GetLastMessageID{Consumer: 1, Request: r.request()}, nil)
		r.drain()
		r.send(&wire.Send{Producer: 7, Sequence: 1, Messages: 1}, wire.Join(&wire.Metadata{BatchSize: 1}, nil))
		r.drain()
	}},
	{"producers", func(s *script) {
		r := s.dial("a")
		create := func(id uint64, change func(*wire.Producer)) {
			m := &wire.Producer{Topic: s.topic, Producer: id, Request: r.request(), Name: "p", UserProvidedName: true, TopicEpoch: wire.Absent}
			change(m)
			r.send(m, nil)
			r.drain()
		}
		create(1, func(m *wire.Producer) {})
		create(1, func(m *wire.Producer) {})
		create(2, func(m *wire.Producer) {})
		create(3, func(m *wire.Producer) { m.Name = ""; m.UserProvidedName = false })
		create(4, func(m *wire.Producer) { m.Name = "x"; m.AccessMode = wire.AccessExclusive })
		create(5, func(m *wire.Producer) { m.Name = "w"; m.AccessMode = wire.AccessWaitForExclusive })
		r.send(&wire.CloseProducer{Producer: 1, Request: r.request()}, nil)
		r.drain()
		r.send(&wire.CloseProducer{Producer: 3, Request: r.request()}, nil)
		r.drain()
		create(6, func(m *wire.Producer) { m.Name = "y" })
		create(7, func(m *wire.Producer) { m.Name = "z"; m.AccessMode = wire.AccessFencing })
		data := wire.Join(&wire.Metadata{ProducerName: "z", BatchSize: 1}, []byte("0"))
		r.send(&wire.Send{Producer: 7, Sequence: 3, Messages: 1}, data)
		r.drain()
		r.send(&wire.Send{Producer: 7, Sequence: 4, Messages: 1, HighestID: 6}, data)
		r.drain()
		r.send(&wire.Send{Producer: 5, Sequence: 5, Messages: 1}, data) // closed by the broker
		r.drain()
	}},
	{"schemas", func(s *script) {
		r := ready(s)
		str := &wire.Schema{Name: "s", Type: 1, Data: []byte{}}
		r.send(&wire.GetSchema{Request: r.request(), Topic: s.topic}, nil)
		r.drain()
		r.send(&wire.GetOrCreateSchema{Request: r.request(), Topic: s.topic, Schema: str}, nil)
		r.drain()
		r.send(&wire.GetOrCreateSchema{Request: r.request(), Topic: s.topic, Schema: str}, nil)
		r.drain()
		r.send(&wire.GetSchema{Request: r.request(), Topic: s.topic}, nil)
		r.drain()
		r.send(&wire.Producer{Topic: s.topic, Producer: 2, Request: r.request(), UserProvidedName: true, TopicEpoch: wire.Absent, Schema: str}, nil)
		r.drain()
	}},
	{"topics", func(s *script) {
		r := s.dial("a")
		metadata := func() {
			r.send(&wire.PartitionedMetadata{Topic: s.topic, Request: r.request()}, nil)
			r.drain()
		}
		r.note("create %s", s.rest("PUT", s.path(s.topic)+"/partitions", "2"))
		r.note("create %s", s.rest("PUT", s.path(s.topic)+"/partitions", "2"))
		metadata()
		r.send(&wire.GetTopics{Namespace: "public/default", Request: r.request()}, nil)
		r.drain()
		r.note("more %s", s.rest("POST", s.path(s.topic)+"/partitions", "3"))
		metadata()
		r.note("stats %s", s.rest("GET", s.path(s.topic)+"/stats", ""))
		r.note("partitioned stats %s", s.rest("GET", s.path(s.topic)+"/partitioned-stats", ""))
		r.note("unload %s", s.rest("PUT", s.path(s.topic)+"/unload", ""))
		r.note("delete %s", s.rest("DELETE", s.path(s.topic)+"/partitions", ""))
		r.note("delete %s", s.rest("DELETE", s.path(s.topic), ""))
		r.note("stats %s", s.rest("GET", s.path(s.topic)+"/stats", ""))
		r.note("create %s", s.rest("PUT", s.path(s.topic+"-x"), ""))
		r.note("create %s", s.rest("PUT", s.path(s.topic+"-x"), ""))
		r.note("stats %s", s.rest("GET", s.path(s.topic+"-x")+"/stats", ""))
		r.note("delete %s", s.rest("DELETE", s.path(s.topic+"-x"), ""))
	}},
	{"chunks-go-to-one-consumer", func(s *script) {
		p := ready(s)
		a := s.dial("a")
		a.subscribe(1, wire.Shared)
		a.subscribe(2, wire.Shared)
		a.flow(1, 100)
		a.flow(2, 100)
		time.Sleep(a.quiet)
		for i := range 4 {
			p.publish("chunk", func(m *wire.Metadata) { m.UUID, m.Chunks, m.ChunkID = "u", 4, int32(i) })
		}
		a.drain()
		time.Sleep(2 * time.Second)
		a.drain()
	}},
	{"non-durable-goes-with-its-consumer", func(s *script) {
		r := ready(s)
		r.publish("0")
		temporary := func(m *wire.Subscribe) {
			m.Durable = false
			m.Start = &wire.MessageID{Ledger: math.MaxUint64, Entry: math.MaxUint64, Partition: -1, BatchIndex: -1}
		}
		r.subscribe(1, wire.Shared, temporary)
		r.flow(1, 10)
		id := r.drain()
		r.ack(1, id...)
		r.send(&wire.CloseConsumer{Consumer: 1, Request: r.request()}, nil)
		r.drain()
		time.Sleep(r.quiet)
		r.subscribe(1, wire.Shared, temporary)
		r.flow(1, 10)
		r.drain()
	}},
}
