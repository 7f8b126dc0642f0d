package fidelity

import (
	"fmt"
	"slices"
)

// Redelivery counts, also after each way in which a consumer can leave.
var countScenarios = slices.Concat([]scenario{
	{name: "redelivery-counts", run: func(s *script) {
		a := s.ready()
		a.subscribe(1, "Shared")
		var ids []messageID
		for _, p := range []string{"0", "1", "2", "3", "4"} {
			ids = append(ids, a.publish(p))
		}
		a.flow(1, 100)
		a.drain()
		a.redeliver(1, ids[3], ids[1], ids[3], ids[0].at(77))
		a.drain()
		a.redeliver(1, ids[1])
		a.drain()
		a.ack(1, ids[1])
		a.redeliver(1, ids[1])
		a.drain()
		a.redeliver(1)
		a.drain()
	}},
	{name: "redelivery-counts-of-batches", run: countsOfBatches},
	{name: "redelivery-counts-of-batches-indexed", indexed: true, run: countsOfBatches},
	{name: "exclusive-rewinds", run: func(s *script) { rewinds(s, "Exclusive") }},
	{name: "failover-rewinds", run: func(s *script) { rewinds(s, "Failover") }},
	{name: "redelivery-of-what-another-has", run: func(s *script) {
		p := s.ready()
		a, b := s.dial("a"), s.dial("b")
		a.listen(1, "Shared")
		id := p.publish("0")
		a.drain()
		b.listen(2, "Shared")
		b.redeliver(2, id)
		b.redeliver(2)
		b.drain()
		a.drain()
		a.redeliver(1, id)
		a.drain()
		b.drain()
	}},
	{name: "redelivery-before-delivery", run: func(s *script) {
		a := s.ready()
		a.subscribe(1, "Shared")
		a.flow(1, 1)
		first, second := a.publish("0"), a.publish("1")
		a.drain()
		a.redeliver(1, second) // not sent yet
		a.drain()
		a.flow(1, 5)
		a.drain()
		a.redeliver(1, first)
		a.redeliver(1, second)
		a.drain()
	}},
	{name: "redelivered-before-new", run: func(s *script) {
		a := s.ready()
		a.subscribe(1, "Shared")
		var ids []messageID
		for _, p := range []string{"0", "1", "2", "3", "4", "5"} {
			ids = append(ids, a.publish(p))
		}
		a.flow(1, 3)
		a.drain()
		a.redeliver(1, ids[2])
		a.redeliver(1, ids[0])
		a.drain()
		a.flow(1, 4)
		a.drain()
		a.flow(1, 100)
		a.drain()
	}},
}, countsAfter("Shared"), countsAfter("Key_Shared"))

func countsOfBatches(s *script) {
	a := s.ready()
	a.listen(1, "Shared")
	first, second := a.batch(3), a.batch(3)
	a.drain()
	a.redeliver(1, first, second.batchIndex(1), second.batchIndex(2)) // two ids of a batch: its count grows by 1
	a.drain()
	a.redeliver(1, second.batchIndex(0))
	a.drain()
	a.redeliver(1, second.batchIndex(1))
	a.drain()
	a.ack(1, second.keep(0b110, 3))
	a.redeliver(1)
	a.drain()
}

func rewinds(s *script, kind string) {
	a := s.ready()
	a.subscribe(1, kind)
	var ids []messageID
	for _, p := range []string{"0", "1", "2", "3"} {
		ids = append(ids, a.publish(p))
	}
	a.flow(1, 100)
	if kind == "Failover" {
		s.electionIsOver()
	}
	a.drain()
	a.ack(1, ids[1])
	a.redeliver(1, ids[2]) // the broker sends all unacknowledged messages
	a.drain()
	a.redeliver(1, ids[1]) // it also does if the id is of an acknowledged message
	a.drain()
	a.redeliver(1)
	a.drain()
	a.subscribe(2, "Exclusive")
	a.subscribe(3, "Shared")
}

// countsAfter returns two scenarios for each way in which a consumer can leave: with and without a second consumer.
// Each raises the counts of two messages of consumer 1, makes consumer 1 leave, and records the counts that the next
// consumer gets.
func countsAfter(kind string) []scenario {
	ways := []struct {
		name string
		go_  func(s *script, a *conn)
	}{
		{"a-close", func(_ *script, a *conn) { a.closeConsumer(1) }},
		{"a-lost-connection", func(_ *script, a *conn) { a.close() }},
		{"an-unload", func(s *script, _ *conn) { s.callAdmin("PUT", "unload", "") }},
		{"a-seek", func(_ *script, a *conn) { a.ask(`seek { consumer_id: 1 message_publish_time: 1 }`) }},
		{"a-reset", func(s *script, _ *conn) { s.callAdmin("POST", "subscription/s/resetcursor/1", "") }},
		{"a-broken-client", func(_ *script, a *conn) { a.send(`success { request_id: 1 }`); a.drain() }},
	}
	var all []scenario
	for _, way := range ways {
		for _, survivor := range []bool{false, true} {
			name := fmt.Sprintf("counts-after-%s-%s", way.name,
				map[string]string{"Shared": "shared", "Key_Shared": "key-shared"}[kind])
			if survivor {
				name += "-with-survivor"
			}
			all = append(all, scenario{name: name, run: func(s *script) {
				p := s.ready()
				a := s.dial("a")
				a.listen(1, kind)
				var ids []messageID
				for _, text := range []string{"0", "1", "2"} {
					ids = append(ids, p.publish(text, `partition_key: "k"`))
				}
				a.drain()
				a.redeliver(1, ids[1])
				a.drain()
				a.redeliver(1, ids[1], ids[2])
				a.drain()
				var b *conn
				if survivor {
					b = s.dial("b")
					b.listen(2, kind)
					b.drain()
				}
				way.go_(s, a)
				if slices.Contains(s.open, a) {
					a.drain()
				}
				if survivor {
					b.drain()
					b.close()
				}
				c := s.dial("c")
				c.listen(3, kind)
				c.drain()
				c.redeliver(3, ids[1])
				c.drain()
			}})
		}
	}
	return all
}
