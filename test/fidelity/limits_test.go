package fidelity

import "fmt"

// Limits of unacknowledged messages, as set for a topic by the admin API.
var limitScenarios = []scenario{
	{name: "unacked-limit-of-a-consumer",
		differs: map[string]string{"3.0": "a consumer is unblocked one acknowledgement later"},
		run:     func(s *script) { consumerLimit(s, "Shared") }},
	{name: "unacked-limit-of-a-consumer-on-key-shared",
		differs: map[string]string{"3.0": "a consumer is unblocked one acknowledgement later"},
		run:     func(s *script) { consumerLimit(s, "Key_Shared") }},
	{name: "unacked-limit-of-a-consumer-is-over-with-a-redelivery", run: func(s *script) {
		a := s.limited("maxUnackedMessagesOnConsumer", 4)
		a.listen(1, "Shared")
		a.drain()
		ids := a.publishMany(8)
		a.drain()
		s.stats("blocked")
		a.redeliver(1, ids[0], ids[1])
		a.drain()
		s.stats("two redelivered")
	}},
	{name: "unacked-limit-of-a-consumer-and-a-batch", run: func(s *script) {
		a := s.limited("maxUnackedMessagesOnConsumer", 4)
		a.listen(1, "Shared")
		a.drain()
		a.batch(3)
		a.batch(3)
		a.batch(3)
		a.drain()
		s.stats("blocked")
	}},
	{name: "unacked-limit-of-a-consumer-who-goes", run: func(s *script) {
		p := s.limited("maxUnackedMessagesOnConsumer", 4)
		a, b := s.dial("a"), s.dial("b")
		a.listen(1, "Shared")
		a.drain()
		p.publishMany(4)
		a.drain()
		b.listen(2, "Shared")
		b.drain()
		p.publish("4")
		b.drain()
		a.close()
		b.drain()
		s.stats("b has four")
	}},
	{name: "unacked-limit-of-a-subscription", run: func(s *script) {
		a := s.limited("maxUnackedMessagesOnSubscription", 4)
		a.subscribe(1, "Shared")
		ids := a.publishMany(8)
		a.flow(1, 6) // one read of the broker may exceed the limit
		a.drain()
		a.flow(1, 6)
		a.drain()
		s.stats("blocked")
		for i := range 5 {
			a.ack(1, ids[i])
			a.drain()
			s.stats(fmt.Sprintf("%d acknowledged", i+1))
		}
	}},
	{name: "unacked-limit-of-a-subscription-and-a-redelivery", run: func(s *script) {
		a := s.limited("maxUnackedMessagesOnSubscription", 4)
		a.subscribe(1, "Shared")
		ids := a.publishMany(6)
		a.flow(1, 4)
		a.drain()
		a.flow(1, 100)
		a.drain()
		s.stats("blocked")
		a.redeliver(1, ids[1]) // a blocked consumer may still request messages
		a.drain()
		s.stats("one redelivered")
	}},
	{name: "unacked-limit-of-a-subscription-with-two-consumers", run: func(s *script) {
		p := s.limited("maxUnackedMessagesOnSubscription", 4)
		a, b := s.dial("a"), s.dial("b")
		a.subscribe(1, "Shared")
		ids := p.publishMany(6)
		a.flow(1, 4)
		a.drain()
		b.listen(2, "Shared")
		b.drain() // a's messages block b
		a.ack(1, ids[0], ids[1])
		b.drain()
		a.ack(1, ids[2])
		b.drain()
		a.close()
		b.drain()
	}},
	{name: "permits-given-while-blocked",
		differs: map[string]string{"3.0": "a consumer is unblocked one acknowledgement later"},
		run: func(s *script) {
			a := s.limited("maxUnackedMessagesOnConsumer", 2)
			a.subscribe(1, "Shared")
			a.flow(1, 2)
			ids := a.publishMany(6)
			a.drain()
			a.flow(1, 3)
			a.drain()
			s.stats("blocked")
			a.ack(1, ids[0])
			a.drain()
			s.stats("one acknowledged")
		}},
	{name: "no-unacked-limit-on-exclusive", run: func(s *script) {
		a := s.limited("maxUnackedMessagesOnConsumer", 2)
		a.listen(1, "Exclusive")
		a.publishMany(5)
		a.drain()
	}},
}

func consumerLimit(s *script, kind string) {
	a := s.limited("maxUnackedMessagesOnConsumer", 4)
	a.listen(1, kind)
	a.drain()
	ids := a.publishMany(8)
	a.drain()
	s.stats("blocked")
	a.ack(1, ids[0])
	a.drain()
	s.stats("one acknowledged")
	a.ack(1, ids[1])
	a.drain()
	s.stats("two acknowledged")
	a.ack(1, ids[2], ids[3])
	a.drain()
	s.stats("four acknowledged")
}

// limited sets a policy of the topic, and returns a connection as ready does.
func (s *script) limited(policy string, n int) *conn {
	a := s.ready()
	s.callAdmin("POST", policy, fmt.Sprint(n))
	for range 100 { // until the policy is in force
		if status, body := s.call("GET", policy, ""); status == 200 && string(body) == fmt.Sprint(n) {
			break
		}
		a.fence()
	}
	return a
}

func (c *conn) publishMany(n int) []messageID {
	var ids []messageID
	for i := range n {
		ids = append(ids, c.publish(fmt.Sprint(i)))
	}
	return ids
}
