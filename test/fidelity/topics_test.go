package fidelity

import "fmt"

// Topics: unloads, terminations, deletions, and their producers and consumers.
var topicScenarios = []scenario{
	{name: "terminate", run: func(s *script) {
		a := s.ready()
		a.listen(1, "Shared")
		id := a.publish("0")
		a.drain()
		s.callAdmin("POST", "terminate", "")
		a.drain()
		a.newProducer(2)
		a.ack(1, id)
		a.drain()
		a.close()
		b := s.dial("b")
		b.listen(1, "Shared")
		b.drain()
		b.listen(2, "Shared", `subscription: "late"`)
		b.drain()
		s.callAdmin("POST", "terminate", "")
	}},
	{name: "send-to-a-terminated-topic", run: func(s *script) {
		a := s.ready()
		s.callAdmin("POST", "terminate", "")
		a.drain()
		a.newProducer(1)
		s.callAdmin("PUT", "unload", "")
		a.newProducer(1)
	}},
	{name: "delete-a-topic-in-use", run: func(s *script) {
		a := s.ready()
		a.listen(1, "Shared")
		a.publish("0")
		a.drain()
		s.callAdmin("DELETE", "", "")
		s.callAdmin("DELETE", "?force=true", "")
		a.drain()
		a.newProducer(1)
		a.listen(1, "Shared")
		a.drain()
	}},
	{name: "delete-a-topic-with-a-subscription", run: func(s *script) {
		a := s.ready()
		a.listen(1, "Shared")
		a.publish("0")
		a.drain()
		a.closeConsumer(1)
		a.closeProducer(1)
		s.callAdmin("DELETE", "", "")
		s.callAdmin("GET", "stats", "")
		s.callAdmin("DELETE", "", "")
	}},
	{name: "unload", run: func(s *script) {
		a := s.ready()
		a.listen(1, "Shared")
		a.drain()
		id := a.publish("0")
		acked := a.publish("1")
		a.drain()
		a.redeliver(1, id)
		a.drain()
		a.ack(1, acked)
		a.drain()
		s.callAdmin("PUT", "unload", "")
		a.drain()
		a.produce(1)
		a.listen(1, "Shared")
		a.drain()
		a.note("%s", s.id(a.publish("2")))
		a.drain()
	}},
	{name: "unload-keeps-acks-with-gaps", run: func(s *script) {
		a := s.ready()
		a.listen(1, "Shared")
		var ids []messageID
		for i := range 6 {
			ids = append(ids, a.publish(fmt.Sprint(i)))
		}
		a.drain()
		a.ack(1, ids[1], ids[3], ids[4])
		a.drain()
		s.callAdmin("PUT", "unload", "")
		a.drain()
		a.listen(1, "Shared")
		a.drain()
		s.stats("three acknowledged")
	}},
	{name: "stats", run: stats},
	{name: "stats-indexed", indexed: true, run: stats},
	{name: "errors", run: func(s *script) {
		a := s.ready()
		a.closeConsumer(5)
		a.closeProducer(5)
		a.subscribe(1, "Shared")
		a.subscribe(1, "Shared") // the client asks again
		a.subscribe(2, "Shared")
		a.unsubscribe(2)
		a.subscribe(3, "Shared", `topic: "persistent://a/b"`)
		a.closeConsumer(2)
		a.unsubscribe(1)
		a.closeConsumer(1)
		a.unsubscribe(1)
		a.ask(`consumerStats { consumer_id: 1 }`)
	}},
	{name: "subscription-types-conflict", run: func(s *script) {
		a := s.ready()
		a.subscribe(1, "Exclusive")
		a.subscribe(2, "Exclusive")
		a.subscribe(3, "Shared")
		a.subscribe(4, "Failover")
		a.subscribe(5, "Key_Shared")
		a.closeConsumer(1)
		a.subscribe(6, "Shared")
		a.subscribe(7, "Exclusive")
		a.subscribe(8, "Failover")
		a.subscribe(9, "Shared", "durable: false")
	}},
	{name: "read-compacted", run: func(s *script) {
		a := s.ready()
		a.subscribe(1, "Shared", `subscription: "a" read_compacted: true`)
		a.subscribe(2, "Key_Shared", `subscription: "b" read_compacted: true`)
		a.subscribe(3, "Failover", `subscription: "c" read_compacted: true`)
		a.subscribe(4, "Exclusive", `subscription: "d" read_compacted: true`)
		s.callAdmin("GET", "subscriptions", "")
		a.publish("0")
		a.flow(4, 10)
		a.drain()
	}},
	{name: "unsubscribe", differs: map[string]string{"3.0": "the field force of UNSUBSCRIBE is ignored"},
		run: func(s *script) {
			a, b := s.ready(), s.dial("b")
			a.listen(1, "Shared")
			b.subscribe(2, "Shared")
			a.publish("0")
			a.unsubscribe(1) // refused: there is another consumer
			a.ask(`unsubscribe { consumer_id: 1 force: true }`)
			a.drain()
			b.drain()
			s.stats("unsubscribed")
			a.subscribe(3, "Shared", "initialPosition: Latest")
			a.unsubscribe(3)
			s.stats("unsubscribed again")
			a.flow(3, 10)
			a.drain()
		}},
	{name: "non-persistent", run: func(s *script) {
		a := s.dial("a")
		topic := fmt.Sprintf(`topic: "non-persistent://public/default/%s"`, s.topic)
		a.call(fmt.Sprintf(`lookupTopic { %s }`, topic))
		a.newProducer(1, topic)
		a.subscribe(1, "Shared", topic)
		a.trySend(1, "lost: no permits")
		a.flow(1, 2)
		a.drain()
		a.trySend(1, "0")
		a.drain()
		a.redeliver(1)
		a.trySend(1, "1")
		a.trySend(1, "lost: no permits any more")
		a.drain()
		a.flow(1, 5)
		a.drain()
		a.ask(`getLastMessageId { consumer_id: 1 }`)
	}},
	{name: "topics-that-must-exist", run: func(s *script) {
		a := s.dial("a")
		a.subscribe(1, "Shared", "force_topic_creation: false")
		a.produce(1)
		a.subscribe(1, "Shared", "force_topic_creation: false")
	}},
}

func stats(s *script) {
	a := s.ready()
	a.subscribe(1, "Shared")
	a.flow(1, 10)
	a.drain()
	s.stats("subscribed")
	var ids []messageID
	for _, text := range []string{"0", "1", "2"} {
		ids = append(ids, a.publish(text))
	}
	batch := a.batch(3)
	a.drain()
	s.stats("sent")
	a.redeliver(1, ids[0], ids[1])
	a.drain()
	s.stats("redelivered")
	a.ack(1, ids[0], batch.keep(0b011, 3))
	a.drain()
	s.stats("acknowledged")
	a.publish("3")
	a.publish("4")
	a.drain()
	s.stats("out of permits")
	s.callAdmin("PUT", "unload", "")
	a.drain()
	a.listen(1, "Shared")
	a.drain()
	s.stats("unloaded")
	a.closeConsumer(1)
	a.drain()
	s.stats("closed")
}
