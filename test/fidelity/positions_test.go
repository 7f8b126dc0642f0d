package fidelity

import (
	"fmt"
	"time"
)

// Initial positions and seeks.
var positionScenarios = []scenario{
	{name: "seek", run: func(s *script) { seeks(s, "Shared") }},
	{name: "seek-on-exclusive", run: func(s *script) { seeks(s, "Exclusive") }},
	{name: "seek-into-a-batch", run: seekIntoABatch},
	{name: "seek-into-a-batch-indexed", indexed: true, run: seekIntoABatch},
	{name: "seek-with-two-consumers", run: func(s *script) {
		p := s.ready()
		a, b := s.dial("a"), s.dial("b")
		a.listen(1, "Shared")
		id := p.publish("0")
		p.publish("1")
		a.drain()
		b.listen(2, "Shared")
		b.ask(fmt.Sprintf(`seek { consumer_id: 2 message_id { %s } }`, id.text()))
		a.drain()
		b.drain()
		b.listen(2, "Shared")
		b.drain()
	}},
	{name: "seek-by-an-unknown-consumer", run: func(s *script) {
		a := s.ready()
		a.ask(fmt.Sprintf(`seek { consumer_id: 9 message_id { %s } }`, earliest.text()))
		a.subscribe(1, "Shared")
		a.ask(`seek { consumer_id: 1 }`) // to no position
		a.drain()
	}},
	{name: "readers", run: func(s *script) {
		a := s.ready()
		var ids []messageID
		for _, p := range []string{"0", "1", "2"} {
			ids = append(ids, a.publish(p))
		}
		ids = append(ids, a.batch(3))
		a.publish("4")
		for i, start := range []messageID{ids[0], earliest, latest, ids[3].batchIndex(0), ids[3], ids[3].at(100)} {
			a.note("reader %d", i)
			a.listen(uint64(i+1), "Exclusive",
				fmt.Sprintf(`subscription: "reader-%d" durable: false start_message_id { %s }`, i, start.text()))
			a.drain()
		}
		a.ask(`getLastMessageId { consumer_id: 1 }`)
		a.publish("5")
		a.drain()
	}},
	{name: "readers-from-the-latest", run: func(s *script) {
		a := s.ready()
		a.publish("0")
		a.listen(1, "Exclusive", fmt.Sprintf(`subscription: "reader" durable: false initialPosition: Latest start_message_id { %s }`, latest.text()))
		a.drain()
		a.publish("1")
		a.drain()
	}},
	{name: "last-message-id", run: func(s *script) {
		a := s.ready()
		a.subscribe(1, "Shared")
		a.ask(`getLastMessageId { consumer_id: 1 }`)
		id := a.publish("0")
		a.ask(`getLastMessageId { consumer_id: 1 }`)
		a.ack(1, id)
		a.drain()
		a.ask(`getLastMessageId { consumer_id: 1 }`)
		a.batch(3)
		a.ask(`getLastMessageId { consumer_id: 1 }`)
		a.batch(1)
		a.ask(`getLastMessageId { consumer_id: 1 }`)
		a.ask(`getLastMessageId { consumer_id: 7 }`)
	}},
	{name: "last-message-id-after-an-unload", run: func(s *script) {
		a := s.ready()
		a.subscribe(1, "Shared")
		a.publish("0")
		s.callAdmin("PUT", "unload", "")
		a.drain()
		a.subscribe(1, "Shared")
		a.ask(`getLastMessageId { consumer_id: 1 }`)
	}},
	{name: "non-durable-goes-with-its-consumer", run: func(s *script) {
		a := s.ready()
		a.publish("0")
		temporary := fmt.Sprintf("durable: false start_message_id { %s }", earliest.text())
		a.listen(1, "Shared", temporary)
		a.ack(1, a.drain()...)
		a.closeConsumer(1)
		time.Sleep(a.quiet)
		a.listen(1, "Shared", temporary)
		a.drain()
		a.subscribe(2, "Shared") // durable, with the same name
		s.callAdmin("PUT", "unload", "")
		a.drain()
		s.callAdmin("GET", "subscriptions", "")
	}},
	{name: "initial-positions", run: func(s *script) {
		a := s.ready()
		a.publish("0")
		a.listen(1, "Shared", `subscription: "latest" initialPosition: Latest`)
		a.listen(2, "Shared", `subscription: "earliest" initialPosition: Earliest`)
		a.drain()
		a.publish("1")
		a.drain()
	}},
	{name: "delete-a-subscription", run: func(s *script) {
		a := s.ready()
		a.listen(1, "Shared")
		a.publish("0")
		a.drain()
		s.callAdmin("DELETE", "subscription/s", "") // it is in use
		a.drain()
		a.closeConsumer(1)
		s.callAdmin("DELETE", "subscription/s", "")
		s.callAdmin("DELETE", "subscription/s", "")
		a.listen(1, "Shared")
		a.drain()
		s.callAdmin("DELETE", "subscription/s?force=true", "")
		a.drain()
		s.stats("deleted")
		s.callAdmin("DELETE", "subscription/t?force=true", "")
	}},
	{name: "create-a-subscription", run: func(s *script) {
		a := s.ready()
		a.publish("0")
		s.callAdmin("PUT", "subscription/s", "")
		s.callAdmin("PUT", "subscription/s", "")
		a.listen(1, "Shared")
		a.drain()
		a.publish("1")
		a.drain()
		s.callAdmin("PUT", "subscription/e", fmt.Sprintf(`{"ledgerId":%d,"entryId":-1,"partitionIndex":-1}`, -1))
		a.listen(2, "Shared", `subscription: "e"`)
		a.drain()
	}},
	{name: "skip-messages", run: func(s *script) {
		a := s.ready()
		a.subscribe(1, "Shared")
		for i := range 4 {
			a.publish(fmt.Sprint(i))
		}
		a.batch(3)
		a.flow(1, 1)
		a.drain()
		s.callAdmin("POST", "subscription/s/skip/2", "")
		s.recordBacklog("two skipped")
		a.redeliver(1)
		a.flow(1, 100)
		a.drain()
		s.callAdmin("POST", "subscription/s/skip_all", "")
		s.recordBacklog("all skipped")
		a.redeliver(1)
		a.drain()
		a.publish("5")
		a.drain()
		s.callAdmin("POST", "subscription/none/skip/2", "")
		s.callAdmin("POST", "subscription/none/skip_all", "")
	}},
	{name: "reset-to-a-time", run: func(s *script) {
		a := s.ready()
		a.subscribe(1, "Shared")
		a.publish("0", "publish_time: 1000")
		a.publish("1", "publish_time: 2000")
		a.publish("2", "publish_time: 3000")
		a.flow(1, 100)
		ids := a.drain()
		a.ack(1, ids...)
		a.drain()
		s.callAdmin("POST", "subscription/s/resetcursor/2000", "")
		a.drain()
		a.listen(1, "Shared")
		a.drain()
		s.callAdmin("POST", "subscription/none/resetcursor/2000", "")
	}},
	{name: "reset-to-a-message", run: func(s *script) {
		a := s.ready()
		a.subscribe(1, "Shared")
		var ids []messageID
		for i := range 3 {
			ids = append(ids, a.publish(fmt.Sprint(i)))
		}
		a.flow(1, 100)
		a.drain()
		a.ack(1, ids...)
		a.drain()
		position := func(id messageID) string {
			return fmt.Sprintf(`{"ledgerId":%d,"entryId":%d,"partitionIndex":-1}`, id.ledger, id.entry)
		}
		s.callAdmin("POST", "subscription/s/resetcursor", position(ids[1]))
		a.drain()
		a.listen(1, "Shared")
		a.drain()
		s.callAdmin("POST", "subscription/s/resetcursor",
			fmt.Sprintf(`{"ledgerId":%d,"entryId":%d,"partitionIndex":-1,"excluded":true}`,
				ids[1].ledger, ids[1].entry))
		a.drain()
		a.listen(1, "Shared")
		a.drain()
		s.callAdmin("POST", "subscription/none/resetcursor", position(ids[1]))
	}},
}

func seeks(s *script, kind string) {
	a := s.ready()
	a.subscribe(1, kind)
	var ids []messageID
	for _, p := range []string{"0", "1", "2"} {
		ids = append(ids, a.publish(p, "publish_time: 1000"))
	}
	ids = append(ids, a.batch(3, "publish_time: 1000"))
	a.publish("4", "publish_time: 2000")
	a.flow(1, 100)
	a.drain()
	a.redeliver(1, ids[1])
	a.drain()
	a.ack(1, ids...)
	for _, to := range []messageID{ids[1], ids[3].batchIndex(1), earliest, latest, ids[3].at(100)} {
		a.seek(1, kind, fmt.Sprintf("message_id { %s }", to.text()))
	}
	for _, to := range []int64{1500, 1, time.Now().UnixMilli() + 100_000} {
		a.seek(1, kind, fmt.Sprintf("message_publish_time: %d", to))
	}
}

func seekIntoABatch(s *script) {
	a := s.ready()
	a.subscribe(1, "Shared")
	a.publish("0")
	id := a.batch(4)
	a.flow(1, 100)
	a.drain()
	a.seek(1, "Shared", fmt.Sprintf("message_id { %s }", id.batchIndex(2).keep(0b1100, 4).text()))
	s.stats("after the seek")
}
