package fidelity

import "fmt"

// Partitions, and the namespaces and names of topics.
var partitionScenarios = []scenario{
	{name: "partitions", run: func(s *script) {
		a := s.dial("a")
		s.callAdmin("PUT", "partitions", "2")
		s.callAdmin("PUT", "partitions", "2")
		a.metadata()
		a.ask(`getTopicsOfNamespace { namespace: "public/default" }`)
		s.callAdmin("POST", "partitions", "3")
		s.callAdmin("POST", "partitions", "3")
		s.callAdmin("POST", "partitions", "2")
		s.callAdmin("POST", "partitions", "0")
		a.metadata()
		s.callAdmin("GET", "stats", "")
		s.callAdmin("GET", "partitioned-stats", "")
		s.callAdmin("PUT", "unload", "")
		s.callAdmin("DELETE", "", "")
		s.callAdmin("POST", "terminate", "")
		s.callAdmin("DELETE", "partitions", "")
		s.callAdmin("DELETE", "partitions", "")
		s.callAdmin("DELETE", "", "")
		s.callAdmin("GET", "stats", "")
		a.metadata()
	}},
	{name: "bounds-of-partitions",
		differs: map[string]string{"3.0": "partition numbers are not checked",
			"4.2": "a producer or consumer of the whole partitioned topic is refused"},
		run: func(s *script) {
			a := s.dial("a")
			s.callAdmin("PUT", "partitions", "2")
			for _, n := range []string{"-partition-1", "-partition-2", "-partition-9", "-partition-01", ""} {
				topic := fmt.Sprintf("topic: %q", s.topic+n)
				a.ask(`partitionMetadata {}`, "partitionMetadata { "+topic+" }")
				a.lookup(s.topic + n)
				a.newProducer(uint64(len(n)), topic)
				a.subscribe(uint64(len(n)), "Shared", topic)
			}
			s.callAdmin("GET", "partitioned-stats", "")
		}},
	{name: "partitions-of-a-topic-that-has-none", run: func(s *script) {
		a := s.dial("a")
		s.callAdmin("GET", "partitions", "")
		s.note("%s", s.callAdmin("GET", "partitions?checkAllowAutoCreation=true", ""))
		s.callAdmin("GET", "stats", "")
		s.callAdmin("POST", "partitions", "3")
		s.callAdmin("PUT", "", "")
		s.callAdmin("PUT", "", "")
		s.note("%s", s.callAdmin("GET", "partitions", ""))
		s.callAdmin("PUT", "partitions", "3")
		s.callAdmin("POST", "partitions", "3")
		s.callAdmin("GET", "partitioned-stats", "")
		s.callAdmin("GET", "stats", "")
		s.callAdmin("DELETE", "partitions", "")
		a.metadata()
		s.callAdmin("DELETE", "", "")
		s.callAdmin("GET", "stats", "")
		s.callAdmin("PUT", "unload", "")
		s.callAdmin("POST", "terminate", "")
		s.callAdmin("GET", "subscriptions", "")
		s.callAdmin("DELETE", "subscription/s", "")
		s.callAdmin("PUT", "partitions", "0")
	}},
	{name: "partitions-over-what-exists",
		differs: map[string]string{"4.2": "a partition of a topic that does not exist is refused"},
		run: func(s *script) {
			topic := s.topic
			s.topic += "-partition-1"
			s.dial("a").newProducer(1)
			s.topic = topic
			s.callAdmin("PUT", "partitions", "2")
			s.callAdmin("PUT", "", "")
		}},
	{name: "new-partitions-have-the-subscriptions", run: func(s *script) {
		s.callAdmin("PUT", "partitions", "1")
		topic := s.topic
		s.topic = topic + "-partition-0"
		a := s.ready()
		a.listen(1, "Shared")
		a.publish("0")
		a.drain()
		s.topic = topic
		s.callAdmin("POST", "partitions", "2")
		s.topic = topic + "-partition-1"
		a.produce(2)
		a.publishBy(2, "before the consumer", 0)
		a.listen(2, "Shared", "initialPosition: Latest")
		a.drain()
		s.topic = topic
	}},
	{name: "subscriptions-of-a-partitioned-topic", run: func(s *script) {
		s.callAdmin("PUT", "partitions", "2")
		s.callAdmin("PUT", "subscription/s", "")
		s.note("%s", s.callAdmin("GET", "subscriptions", ""))
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
		s.callAdmin("POST", "subscription/s/skip/1", "")
		s.callAdmin("POST", "subscription/s/resetcursor/1", "")
		for _, c := range s.open {
			c.drain()
		}
		s.callAdmin("POST", "subscription/s/skip_all", "")
		s.callAdmin("DELETE", "subscription/s", "")
		s.note("%s", s.callAdmin("GET", "subscriptions", ""))
		s.callAdmin("DELETE", "subscription/s", "")
	}},
	{name: "namespaces", run: func(s *script) {
		a := s.dial("a")
		tenant := "/admin/v2/tenants/" + s.topic
		namespace := "/admin/v2/namespaces/" + s.topic + "/ns"
		use := func() {
			topic := fmt.Sprintf("topic: %q", "persistent://"+s.topic+"/ns/t")
			a.ask(`partitionMetadata {}`, "partitionMetadata { "+topic+" }")
			a.lookup("persistent://" + s.topic + "/ns/t")
			s.callAdmin("PUT", "/admin/v2/persistent/"+s.topic+"/ns/t2", "")
			s.callAdmin("PUT", "/admin/v2/persistent/"+s.topic+"/ns/t3/partitions", "1")
			a.ask(fmt.Sprintf(`getTopicsOfNamespace { namespace: "%s/ns" }`, s.topic))
			s.callAdmin("GET", namespace+"/topics", "")
		}
		use()
		s.callAdmin("PUT", namespace, "")
		s.callAdmin("PUT", tenant, `{"allowedClusters":["standalone"]}`)
		s.callAdmin("PUT", tenant, `{"allowedClusters":["standalone"]}`)
		s.callAdmin("GET", "/admin/v2/namespaces/"+s.topic, "")
		use()
		s.callAdmin("PUT", namespace, "")
		s.callAdmin("PUT", namespace, "")
		use()
		s.callAdmin("DELETE", namespace, "")
		s.callAdmin("DELETE", "/admin/v2/persistent/"+s.topic+"/ns/t3/partitions", "")
		s.callAdmin("DELETE", "/admin/v2/persistent/"+s.topic+"/ns/t2", "")
		s.callAdmin("DELETE", tenant, "")
		s.callAdmin("DELETE", namespace, "")
		s.callAdmin("DELETE", namespace, "")
		s.callAdmin("DELETE", tenant, "")
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
