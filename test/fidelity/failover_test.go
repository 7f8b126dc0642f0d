package fidelity

import (
	"fmt"
	"time"
)

// electionIsOver waits until a Failover subscription serves its active consumer, which is a second after the choice.
func (s *script) electionIsOver() { time.Sleep(1300 * time.Millisecond) }

// Failover: which consumer is active.
var failoverScenarios = []scenario{
	{name: "failover", run: func(s *script) {
		one, two, three := s.failover()
		one.listen(1, "Failover", `consumer_name: "b"`)
		s.electionIsOver()
		ids := one.drain()
		two.listen(2, "Failover", `consumer_name: "c"`)
		s.electionIsOver()
		one.drain()
		two.drain()
		three.listen(3, "Failover", `consumer_name: "a"`)
		s.electionIsOver()
		one.drain()
		two.drain()
		three.drain()
		one.ack(1, ids[0])
		two.redeliver(2)
		one.redeliver(1)
		one.drain()
		one.close()
		s.electionIsOver()
		two.drain()
		three.drain()
	}},
	{name: "failover-priorities", run: func(s *script) {
		one, two, _ := s.failover()
		one.listen(1, "Failover", "priority_level: 1")
		s.electionIsOver()
		one.drain()
		two.listen(2, "Failover", "priority_level: 0")
		s.electionIsOver()
		one.drain()
		two.drain()
		two.closeConsumer(2)
		s.electionIsOver()
		one.drain()
		two.drain()
	}},
	{name: "failover-of-a-waiting-consumer", run: func(s *script) {
		one, two, three := s.failover()
		one.listen(1, "Failover", `consumer_name: "a"`)
		two.listen(2, "Failover", `consumer_name: "b"`)
		three.listen(3, "Failover", `consumer_name: "c"`)
		s.electionIsOver()
		one.drain()
		two.drain()
		three.drain()
		three.close()
		s.electionIsOver()
		one.drain()
		two.drain()
		one.closeConsumer(1)
		s.electionIsOver()
		one.drain()
		two.drain()
	}},
	{name: "failover-without-partitions", run: func(s *script) {
		s.topic = "fidelity-failover-ring" // the ring depends on the topic's name
		s.call("DELETE", "?force=true", "")
		p := s.ready()
		p.publish("0")
		conns := []*conn{s.dial("one"), s.dial("two"), s.dial("three")}
		for i, name := range []string{"alpha", "beta", "gamma"} {
			conns[i].listen(uint64(i+1), "Failover", fmt.Sprintf("consumer_name: %q", name))
			s.electionIsOver()
			for _, c := range conns[:i+1] {
				c.drain()
			}
		}
		for i := range conns[:2] {
			conns[i].close()
			s.electionIsOver()
			for _, c := range conns[i+1:] {
				c.drain()
			}
		}
	}},
}

// failover makes partition 1 of 2 the script's topic, publishes two messages, and opens three connections. On a
// partition, the order of the consumers' names decides which of them is active.
func (s *script) failover() (one, two, three *conn) {
	s.callAdmin("PUT", "partitions", "2")
	s.topic += "-partition-1"
	p := s.ready()
	p.publish("0")
	p.publish("1")
	return s.dial("one"), s.dial("two"), s.dial("three")
}
