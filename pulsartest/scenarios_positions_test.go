package pulsartest

import (
	"math"
	"time"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// Where reading starts, and when.
var positionScenarios = []scenario{
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
		r.publish("in 900ms: at once too", in(900*time.Millisecond))
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
}
