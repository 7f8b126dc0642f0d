package fidelity

import "fmt"

// Topics: what becomes of them and of those who use them.
var topicScenarios = []scenario{
	{name: "terminate", run: func(s *script) {
		a := s.ready()
		a.listen(1, "Shared")
		id := a.publish("0")
		a.drain()
		s.rest("POST", "terminate", "")
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
		s.rest("POST", "terminate", "")
	}},
	{name: "send-to-a-terminated-topic", run: func(s *script) {
		a := s.ready()
		s.rest("POST", "terminate", "")
		a.drain()
		a.newProducer(1)
		s.rest("PUT", "unload", "")
		a.newProducer(1)
	}},
	{name: "delete-a-topic-in-use", run: func(s *script) {
		a := s.ready()
		a.listen(1, "Shared")
		a.publish("0")
		a.drain()
		s.rest("DELETE", "", "")
		s.rest("DELETE", "?force=true", "")
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
		s.rest("DELETE", "", "")
		s.rest("GET", "stats", "")
		s.rest("DELETE", "", "")
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
		s.rest("PUT", "unload", "")
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
		s.rest("PUT", "unload", "")
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
		s.rest("GET", "subscriptions", "")
		a.publish("0")
		a.flow(4, 10)
		a.drain()
	}},
	{name: "unsubscribe", differs: map[string]string{"3.0": "force is not known"},
		run: func(s *script) {
			a, b := s.ready(), s.dial("b")
			a.listen(1, "Shared")
			b.subscribe(2, "Shared")
			a.publish("0")
			a.unsubscribe(1) // not alone
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
	{name: "partitions", run: func(s *script) {
		a := s.dial("a")
		s.rest("PUT", "partitions", "2")
		s.rest("PUT", "partitions", "2")
		a.metadata()
		a.ask(`getTopicsOfNamespace { namespace: "public/default" }`)
		s.rest("POST", "partitions", "3")
		s.rest("POST", "partitions", "3")
		s.rest("POST", "partitions", "2")
		s.rest("POST", "partitions", "0")
		a.metadata()
		s.rest("GET", "stats", "")
		s.rest("GET", "partitioned-stats", "")
		s.rest("PUT", "unload", "")
		s.rest("DELETE", "", "")
		s.rest("POST", "terminate", "")
		s.rest("DELETE", "partitions", "")
		s.rest("DELETE", "partitions", "")
		s.rest("DELETE", "", "")
		s.rest("GET", "stats", "")
		a.metadata()
	}},
	{name: "bounds-of-partitions", differs: map[string]string{"3.0": "partitions have no bounds", "4.2": "a producer or consumer of the whole partitioned topic is refused"},
		run: func(s *script) {
			a := s.dial("a")
			s.rest("PUT", "partitions", "2")
			for _, n := range []string{"-partition-1", "-partition-2", "-partition-9", "-partition-01", ""} {
				topic := fmt.Sprintf("topic: %q", s.topic+n)
				a.ask(`partitionMetadata {}`, "partitionMetadata { "+topic+" }")
				a.lookup(s.topic + n)
				a.newProducer(uint64(len(n)), topic)
				a.subscribe(uint64(len(n)), "Shared", topic)
			}
			s.rest("GET", "partitioned-stats", "")
		}},
	{name: "partitions-of-a-topic-that-has-none", run: func(s *script) {
		a := s.dial("a")
		s.rest("GET", "partitions", "")
		s.note("%s", s.rest("GET", "partitions?checkAllowAutoCreation=true", ""))
		s.rest("GET", "stats", "")
		s.rest("POST", "partitions", "3")
		s.rest("PUT", "", "")
		s.rest("PUT", "", "")
		s.note("%s", s.rest("GET", "partitions", ""))
		s.rest("PUT", "partitions", "3")
		s.rest("POST", "partitions", "3")
		s.rest("GET", "partitioned-stats", "")
		s.rest("GET", "stats", "")
		s.rest("DELETE", "partitions", "")
		a.metadata()
		s.rest("DELETE", "", "")
		s.rest("GET", "stats", "")
		s.rest("PUT", "unload", "")
		s.rest("POST", "terminate", "")
		s.rest("GET", "subscriptions", "")
		s.rest("DELETE", "subscription/s", "")
		s.rest("PUT", "partitions", "0")
	}},
	{name: "partitions-over-what-exists", differs: map[string]string{"4.2": "a partition of a topic that does not exist is refused"},
		run: func(s *script) {
			topic := s.topic
			s.topic += "-partition-1"
			s.dial("a").newProducer(1)
			s.topic = topic
			s.rest("PUT", "partitions", "2")
			s.rest("PUT", "", "")
		}},
	{name: "new-partitions-have-the-subscriptions", run: func(s *script) {
		s.rest("PUT", "partitions", "1")
		topic := s.topic
		s.topic = topic + "-partition-0"
		a := s.ready()
		a.listen(1, "Shared")
		a.publish("0")
		a.drain()
		s.topic = topic
		s.rest("POST", "partitions", "2")
		s.topic = topic + "-partition-1"
		a.produce(2)
		a.publishBy(2, "before the consumer", 0)
		a.listen(2, "Shared", "initialPosition: Latest")
		a.drain()
		s.topic = topic
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
	{name: "invalid-names", run: func(s *script) {
		a := s.dial("a")
		for _, name := range []string{"persistent://a/b", "other://public/default/t", "persistent://public/default/"} {
			topic := fmt.Sprintf("topic: %q", name)
			a.ask(`partitionMetadata {}`, "partitionMetadata { "+topic+" }")
			a.lookup(name)
			a.subscribe(1, "Shared", topic)
			a.newProducer(1, topic)
		}
	}},
	{name: "namespaces", run: func(s *script) {
		a := s.dial("a")
		tenant := "/admin/v2/tenants/" + s.topic
		namespace := "/admin/v2/namespaces/" + s.topic + "/ns"
		use := func() {
			topic := fmt.Sprintf("topic: %q", "persistent://"+s.topic+"/ns/t")
			a.ask(`partitionMetadata {}`, "partitionMetadata { "+topic+" }")
			a.lookup("persistent://" + s.topic + "/ns/t")
			s.rest("PUT", "/admin/v2/persistent/"+s.topic+"/ns/t2", "")
			s.rest("PUT", "/admin/v2/persistent/"+s.topic+"/ns/t3/partitions", "1")
			a.ask(fmt.Sprintf(`getTopicsOfNamespace { namespace: "%s/ns" }`, s.topic))
			s.rest("GET", namespace+"/topics", "")
		}
		use()
		s.rest("PUT", namespace, "")
		s.rest("PUT", tenant, `{"allowedClusters":["standalone"]}`)
		s.rest("PUT", tenant, `{"allowedClusters":["standalone"]}`)
		s.rest("GET", "/admin/v2/namespaces/"+s.topic, "")
		use()
		s.rest("PUT", namespace, "")
		s.rest("PUT", namespace, "")
		use()
		s.rest("DELETE", namespace, "")
		s.rest("DELETE", "/admin/v2/persistent/"+s.topic+"/ns/t3/partitions", "")
		s.rest("DELETE", "/admin/v2/persistent/"+s.topic+"/ns/t2", "")
		s.rest("DELETE", tenant, "")
		s.rest("DELETE", namespace, "")
		s.rest("DELETE", namespace, "")
		s.rest("DELETE", tenant, "")
	}},
	{name: "subscriptions-of-a-partitioned-topic", run: func(s *script) {
		s.rest("PUT", "partitions", "2")
		s.rest("PUT", "subscription/s", "")
		s.note("%s", s.rest("GET", "subscriptions", ""))
		topic := s.topic
		for p := range 2 {
			s.topic = fmt.Sprintf("%s-partition-%d", topic, p)
			a := s.dial(fmt.Sprint(p))
			a.produce(1)
			a.publish("0")
			a.publish("1")
			a.listen(1, "Shared")
			a.drain()
		}
		s.topic = topic
		s.rest("POST", "subscription/s/skip/1", "")
		s.rest("POST", "subscription/s/resetcursor/1", "")
		for _, c := range s.open {
			c.drain()
		}
		s.rest("POST", "subscription/s/skip_all", "")
		s.rest("DELETE", "subscription/s", "")
		s.note("%s", s.rest("GET", "subscriptions", ""))
		s.rest("DELETE", "subscription/s", "")
	}},
}

func (c *conn) metadata() { c.ask(fmt.Sprintf(`partitionMetadata { topic: %q }`, c.topic)) }

func (c *conn) lookup(topic string) { c.ask(fmt.Sprintf(`lookupTopic { topic: %q }`, topic)) }

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
	s.rest("PUT", "unload", "")
	a.drain()
	a.listen(1, "Shared")
	a.drain()
	s.stats("unloaded")
	a.closeConsumer(1)
	a.drain()
	s.stats("closed")
}
