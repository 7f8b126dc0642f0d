package pulsartest

import (
	"time"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// Who gets a message.
var choiceScenarios = []scenario{
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
}
