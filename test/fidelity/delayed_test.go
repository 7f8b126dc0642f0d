package fidelity

import (
	"fmt"
	"time"
)

// in returns the metadata of a message that is due after d.
func in(d time.Duration) string {
	return fmt.Sprintf("deliver_at_time: %d", time.Now().Add(d).UnixMilli())
}

// Delayed delivery.
var delayedScenarios = []scenario{
	{name: "delayed", run: func(s *script) {
		a := s.ready()
		a.listen(1, "Shared")
		a.drain()
		start := time.Now()
		a.publish("in 3s", in(3*time.Second))
		a.publish("in 800ms: at once", in(800*time.Millisecond))
		a.publish("at once")
		a.publish("past", in(-time.Hour))
		a.drain()
		a.publish("in 900ms: at once too", in(900*time.Millisecond))
		a.drain()
		s.stats("one waits")
		late := a.awaitMessage(start)
		a.note("in 3s, a tick more or less: %t", late > 2*time.Second && late < 4500*time.Millisecond)
		a.drain()
		s.stats("none waits")
	}},
	{name: "delayed-not-on-exclusive-and-failover", run: func(s *script) {
		a := s.ready()
		a.publish("in an hour", in(time.Hour))
		a.listen(1, "Exclusive", `subscription: "exclusive"`)
		a.listen(2, "Failover", `subscription: "failover"`)
		s.electionIsOver()
		a.drain()
	}},
	{name: "delayed-on-key-shared", run: func(s *script) {
		a := s.ready()
		a.listen(1, "Key_Shared")
		start := time.Now()
		a.publish("in 2.5s", in(2500*time.Millisecond), key(1))
		a.publish("same key, at once", key(1))
		a.publish("other key", key(2))
		a.drain()
		late := a.awaitMessage(start)
		a.note("in 2.5s, a tick more or less: %t", late > 1500*time.Millisecond && late < 4*time.Second)
		a.drain()
	}},
	{name: "delayed-and-redelivered", run: func(s *script) {
		a := s.ready()
		a.listen(1, "Shared")
		a.publish("in 2s", in(2*time.Second))
		a.drain()
		a.awaitMessage(time.Now())
		ids := a.drain()
		a.redeliver(1, ids...) // now it is due
		a.drain()
		a.redeliver(1)
		a.drain()
	}},
	{name: "delayed-waits-over-a-reconnect", run: func(s *script) {
		p := s.ready()
		a := s.dial("a")
		a.listen(1, "Shared")
		p.publish("in 3s", in(3*time.Second))
		p.publish("at once")
		a.drain()
		a.close()
		b := s.dial("b")
		b.listen(2, "Shared")
		b.drain()
		s.stats("one waits")
		b.awaitMessage(time.Now())
		b.drain()
	}},
	{name: "delayed-and-acknowledged-before", run: func(s *script) {
		a := s.ready()
		a.listen(1, "Shared")
		id := a.publish("in 2s", in(2*time.Second))
		a.drain()
		s.stats("one waits")
		a.ack(1, id)
		a.drain()
		time.Sleep(3 * time.Second)
		a.drain()
		s.stats("acknowledged")
	}},
	{name: "delayed-in-the-order-of-time", run: func(s *script) {
		a := s.ready()
		a.listen(1, "Shared")
		a.publish("in 6s", in(6*time.Second)) // the due times differ by more than the broker's tolerance
		a.publish("in 2s", in(2*time.Second))
		a.awaitMessage(time.Now())
		a.awaitMessage(time.Now())
		a.drain()
	}},
	{name: "delayed-batch", run: func(s *script) {
		a := s.ready()
		a.listen(1, "Shared")
		a.batch(3, in(2500*time.Millisecond))
		a.drain()
		s.stats("one entry waits")
		a.awaitMessage(time.Now())
		a.drain()
	}},
}

// awaitMessage waits for the next message and returns how long after start it came. It leaves the message to drain,
// which records it.
func (c *conn) awaitMessage(start time.Time) time.Duration {
	a := c.await(func(a arrival) bool { return a.name == "MESSAGE" })
	if a.cmd == nil {
		c.note("%s < %s", c.name, a.name)
		return 0
	}
	c.held = append(c.held, a)
	return time.Since(start)
}
