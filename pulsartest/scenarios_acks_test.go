package pulsartest

import (
	"time"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// Acks, redeliveries and permits.
var ackScenarios = []scenario{
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
		r.close()
		r = s.dial("b")
		r.subscribe(1, wire.Shared)
		r.flow(1, 100)
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
	{"lost-connection-without-survivor", func(s *script) {
		r := ready(s)
		r.subscribe(1, wire.Shared)
		var ids []wire.MessageID
		for _, text := range []string{"0", "1", "2"} {
			ids = append(ids, r.publish(text))
		}
		r.flow(1, 100)
		r.drain()
		for range 2 {
			r.redeliver(1, ids[1], ids[2])
			r.drain()
		}
		r.ack(1, ids[0])
		r.drain()
		r.close()
		r = s.dial("b")
		r.subscribe(1, wire.Shared)
		r.flow(1, 100)
		r.drain()
		r.redeliver(1, ids[2])
		r.drain()
		r.send(&wire.CloseConsumer{Consumer: 1, Request: r.request()}, nil)
		r.drain()
		r.subscribe(1, wire.Failover)
		r.flow(1, 100)
		time.Sleep(1200 * time.Millisecond)
		r.drain()
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
}
