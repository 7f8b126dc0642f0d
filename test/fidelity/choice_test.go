package fidelity

import (
	"fmt"
	"time"
)

// Which consumer of a Shared subscription gets a message, and when.
var choiceScenarios = []scenario{
	{name: "permits", run: func(s *script) {
		a := s.ready()
		a.subscribe(1, "Shared")
		var ids []messageID
		for _, p := range []string{"0", "1", "2", "3", "4"} {
			ids = append(ids, a.publish(p))
		}
		a.flow(1, 2)
		a.drain()
		a.redeliver(1, ids[0], ids[1])
		a.drain()
		a.flow(1, 1)
		a.drain()
		a.flow(1, 2)
		a.drain()
		a.flow(1, 10)
		a.drain()
	}},
	{name: "permits-on-exclusive", run: func(s *script) {
		a := s.ready()
		a.subscribe(1, "Exclusive")
		for _, p := range []string{"0", "1", "2", "3"} {
			a.publish(p)
		}
		a.batch(3)
		a.publish("5")
		a.flow(1, 2)
		a.drain()
		a.redeliver(1)
		a.drain()
		a.flow(1, 1)
		a.drain()
		a.flow(1, 5)
		a.drain()
		s.stats("permits below zero or at it")
		a.flow(1, 10)
		a.drain()
	}},
	{name: "three-consumers-on-shared-in-turn", run: func(s *script) {
		p := s.ready()
		a := s.dial("a")
		for id := range uint64(3) {
			a.subscribe(id+1, "Shared")
		}
		for id := range uint64(3) {
			a.flow(id+1, 1)
		}
		a.drain()
		for i := range 3 {
			p.publish(fmt.Sprint(i))
		}
		a.drain()
		a.flow(2, 2)
		p.publish("3")
		p.publish("4")
		p.publish("5")
		a.drain()
		a.flow(1, 1)
		a.drain()
		s.stats("in the end")
	}},
	{name: "shared-hands-out-by-twenties", run: func(s *script) {
		p := s.ready()
		a := s.dial("a")
		a.subscribe(1, "Shared")
		a.flow(1, 50)
		p.publishMany(50)
		before := len(s.trace)
		a.drain()
		s.trace = s.trace[:before]
		a.subscribe(2, "Shared")
		a.flow(2, 100)
		a.subscribe(3, "Shared")
		a.flow(3, 100)
		a.fence()
		a.flow(1, 100)
		a.drain()
		a.redeliver(1)
		a.drain()
		s.stats("in the end")
	}},
	{name: "shared-hands-out-by-permits", run: func(s *script) {
		p := s.ready()
		a := s.dial("a")
		a.subscribe(1, "Shared")
		a.flow(1, 12)
		p.publishMany(12)
		a.drain()
		a.subscribe(2, "Shared")
		a.flow(2, 3)
		a.subscribe(3, "Shared")
		a.flow(3, 5)
		a.drain()
		a.redeliver(1)
		a.drain()
		a.flow(2, 2)
		a.drain()
		a.flow(1, 20)
		a.drain()
	}},
	{name: "shared-permits-and-batches", run: func(s *script) {
		a := s.ready()
		a.subscribe(1, "Shared")
		for range 3 {
			a.batch(3)
		}
		a.publishMany(4)
		a.flow(1, 4) // a permit is for a message; the broker divides permits by the mean size of an entry
		a.drain()
		s.stats("four permits")
		a.flow(1, 10)
		a.drain()
		s.stats("ten more")
	}},
	{name: "three-consumers-on-shared-lose-one", run: func(s *script) {
		p := s.ready()
		a, b, c := s.dial("a"), s.dial("b"), s.dial("c")
		a.subscribe(1, "Shared")
		a.flow(1, 4)
		for i := range 4 {
			p.publish(fmt.Sprint(i))
		}
		ids := a.drain()
		a.redeliver(1, ids[3])
		a.flow(1, 1)
		a.drain()
		b.subscribe(2, "Shared")
		c.subscribe(3, "Shared")
		a.ack(1, ids[0])
		a.close()
		b.flow(2, 1)
		b.drain()
		c.flow(3, 5)
		c.drain()
		b.close()
		c.drain()
		s.stats("in the end")
	}},
	{name: "shared-priorities", run: func(s *script) {
		p := s.ready()
		a := s.dial("a")
		a.subscribe(1, "Shared", "priority_level: 1")
		a.subscribe(2, "Shared", "priority_level: 0")
		a.subscribe(3, "Shared", "priority_level: 2")
		a.flow(1, 2)
		a.flow(3, 10)
		a.flow(2, 2)
		a.drain()
		for i := range 6 {
			p.publish(fmt.Sprint(i))
			a.fence()
			time.Sleep(s.quiet / 4)
		}
		a.drain()
		a.flow(2, 1)
		p.publish("6")
		a.drain()
	}},
	{name: "delayed-messages-take-a-turn", run: func(s *script) {
		p := s.ready()
		a := s.dial("a")
		a.listen(1, "Shared")
		a.listen(2, "Shared")
		a.drain()
		for i := range 6 {
			if i%3 == 1 {
				p.publish(fmt.Sprint(i), in(time.Hour))
			} else {
				p.publish(fmt.Sprint(i))
			}
			a.fence()
			time.Sleep(s.quiet / 4)
		}
		a.drain()
	}},
	{name: "a-consumer-without-permits-keeps-nothing", run: func(s *script) {
		p := s.ready()
		a := s.dial("a")
		a.subscribe(1, "Shared")
		a.subscribe(2, "Shared")
		a.flow(2, 10)
		a.drain()
		for i := range 4 {
			p.publish(fmt.Sprint(i))
		}
		a.drain()
		a.flow(1, 10)
		a.drain()
	}},
	{name: "chunks-go-to-one-consumer", run: func(s *script) {
		p := s.ready()
		a := s.dial("a")
		a.subscribe(1, "Shared")
		a.subscribe(2, "Shared")
		a.flow(1, 100)
		a.flow(2, 100)
		time.Sleep(a.quiet)
		for i := range 4 {
			p.publish("chunk", fmt.Sprintf(`uuid: "u" num_chunks_from_msg: 4 total_chunk_msg_size: 20 chunk_id: %d`, i))
		}
		a.drain()
	}},
}
