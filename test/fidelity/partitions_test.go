package fidelity

import "fmt"

// Partitions, and the namespaces and names of topics.
var partitionScenarios = []scenario{
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
	{name: "bounds-of-partitions",
		differs: map[string]string{"3.0": "partition numbers are not checked",
			"4.2": "a producer or consumer of the whole partitioned topic is refused"},
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
	{name: "partitions-over-what-exists",
		differs: map[string]string{"4.2": "a partition of a topic that does not exist is refused"},
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
}

func (c *conn) metadata() { c.ask(fmt.Sprintf(`partitionMetadata { topic: %q }`, c.topic)) }

func (c *conn) lookup(topic string) { c.ask(fmt.Sprintf(`lookupTopic { topic: %q }`, topic)) }
