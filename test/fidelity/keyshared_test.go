package fidelity

import "fmt"

// Key_Shared: which consumer has a key, and which consumer waits for it.
var keySharedScenarios = []scenario{
	{name: "key-shared", differs: map[string]string{"3.0": "the hash ring has other points"},
		run: func(s *script) {
			p := s.ready()
			a, b := s.dial("a"), s.dial("b")
			a.listen(1, "Key_Shared", "keySharedMeta { keySharedMode: AUTO_SPLIT }")
			b.listen(2, "Key_Shared", "keySharedMeta { keySharedMode: AUTO_SPLIT }")
			var ids []messageID
			for i := range 24 {
				ids = append(ids, p.publish(fmt.Sprint(i), key(i%8)))
			}
			gotA := a.drain()
			gotB := b.drain()
			a.redeliver(1, gotA...)
			a.drain()
			b.redeliver(2, gotB[0])
			b.drain()
			a.close() // its messages go to b
			b.drain()
			b.ack(2, ids...)
			p.publish("z", `ordering_key: "z"`)
			b.drain()
		}},
	{name: "key-shared-waits-for-the-old-owner",
		differs: map[string]string{"3.0": "the hash ring has other points"},
		run: func(s *script) {
			p := s.ready()
			a, b := s.dial("a"), s.dial("b")
			a.listen(1, "Key_Shared")
			a.drain()
			var ids []messageID
			for i := range 8 {
				ids = append(ids, p.publish("first", key(i)))
			}
			a.drain()
			b.listen(2, "Key_Shared")
			b.drain()
			for i := range 8 {
				p.publish("second", key(i))
			}
			a.drain()
			b.drain()
			a.ack(1, ids...)
			a.drain()
			b.drain()
		}},
	{name: "key-shared-redelivery-goes-to-the-new-owner",
		differs: map[string]string{"3.0": "the hash ring has other points"},
		run: func(s *script) {
			p := s.ready()
			a, b := s.dial("a"), s.dial("b")
			a.listen(1, "Key_Shared")
			var ids []messageID
			for i := range 8 {
				ids = append(ids, p.publish(fmt.Sprint(i), key(i)))
			}
			a.drain()
			b.listen(2, "Key_Shared")
			b.drain()
			a.redeliver(1, ids...)
			a.drain()
			b.drain()
			p.publish("again", key(0))
			p.publish("again", key(1))
			a.drain()
			b.drain()
		}},
	{name: "key-shared-leave", differs: map[string]string{"3.0": "the hash ring has other points"},
		run: func(s *script) {
			p := s.ready()
			a, b, c := s.dial("a"), s.dial("b"), s.dial("c")
			a.listen(1, "Key_Shared")
			b.listen(2, "Key_Shared")
			c.listen(3, "Key_Shared")
			for i := range 12 {
				p.publish(fmt.Sprint(i), key(i))
			}
			a.drain()
			b.drain()
			c.drain()
			b.closeConsumer(2)
			a.drain()
			c.drain()
			for i := range 12 {
				p.publish("more", key(i))
			}
			a.drain()
			c.drain()
		}},
	{name: "key-shared-out-of-order", differs: map[string]string{"3.0": "the hash ring has other points"},
		run: func(s *script) {
			p := s.ready()
			a, b := s.dial("a"), s.dial("b")
			loose := "keySharedMeta { keySharedMode: AUTO_SPLIT allowOutOfOrderDelivery: true }"
			a.listen(1, "Key_Shared", loose)
			for i := range 6 {
				p.publish("first", key(i))
			}
			a.drain()
			b.listen(2, "Key_Shared", loose)
			for i := range 6 {
				p.publish("second", key(i))
			}
			a.drain()
			b.drain()
		}},
	{name: "key-shared-ranges", run: func(s *script) {
		p := s.ready()
		a := s.dial("a")
		ranges := func(from, to int) string {
			return fmt.Sprintf("keySharedMeta { keySharedMode: STICKY hashRanges { start: %d end: %d } }", from, to)
		}
		a.subscribe(1, "Key_Shared", ranges(0, 32767))
		a.subscribe(2, "Key_Shared", ranges(32768, 65535))
		a.subscribe(3, "Key_Shared", ranges(100, 200)) // the range is taken
		a.flow(1, 100)
		a.flow(2, 100)
		for i := range 12 {
			p.publish("m", key(i))
		}
		a.drain()
		a.closeConsumer(2)
		for i := range 4 {
			p.publish("not owned", key(i))
		}
		a.drain()
		a.subscribe(4, "Key_Shared", ranges(32768, 65535))
		a.flow(4, 100)
		a.drain()
	}},
	{name: "key-shared-invalid-ranges", run: func(s *script) {
		a := s.ready()
		a.subscribe(1, "Key_Shared", "keySharedMeta { keySharedMode: STICKY }")
		a.subscribe(2, "Key_Shared", "keySharedMeta { keySharedMode: STICKY hashRanges { start: 5 end: 1 } }")
		a.subscribe(3, "Key_Shared", "keySharedMeta { keySharedMode: STICKY hashRanges { start: 0 end: 65536 } }")
		a.subscribe(4, "Key_Shared", "keySharedMeta { keySharedMode: STICKY hashRanges { start: -5 end: 3 } }")
		a.subscribe(5, "Key_Shared", "keySharedMeta { keySharedMode: STICKY hashRanges { start: 0 end: 65535 } }")
	}},
	{name: "key-shared-modes-conflict",
		differs: map[string]string{"3.0": "ordered and out-of-order consumers may share a Key_Shared subscription"},
		run: func(s *script) {
			a := s.ready()
			a.subscribe(1, "Key_Shared", "keySharedMeta { keySharedMode: AUTO_SPLIT }")
			a.subscribe(2, "Key_Shared", "keySharedMeta { keySharedMode: STICKY hashRanges { start: 0 end: 65535 } }")
			a.subscribe(3, "Key_Shared", "keySharedMeta { keySharedMode: AUTO_SPLIT allowOutOfOrderDelivery: true }")
			a.subscribe(4, "Shared")
			a.closeConsumer(1)
			a.subscribe(5, "Key_Shared", "keySharedMeta { keySharedMode: STICKY hashRanges { start: 0 end: 65535 } }")
			a.subscribe(6, "Key_Shared", "keySharedMeta { keySharedMode: AUTO_SPLIT }")
		}},
	{name: "key-shared-a-blocked-key-lets-others-pass",
		differs: map[string]string{"3.0": "the hash ring has other points"},
		run: func(s *script) {
			p := s.ready()
			a, b := s.dial("a"), s.dial("b")
			a.subscribe(1, "Key_Shared")
			b.subscribe(2, "Key_Shared")
			a.flow(1, 2)
			b.flow(2, 100)
			for i := range 16 {
				p.publish(fmt.Sprint(i), key(i%8))
			}
			a.drain()
			b.drain()
			a.flow(1, 2)
			a.drain()
			b.drain()
		}},
	{name: "key-shared-batches", differs: map[string]string{"3.0": "the hash ring has other points"},
		run: func(s *script) {
			p := s.ready()
			a, b := s.dial("a"), s.dial("b")
			a.listen(1, "Key_Shared")
			b.listen(2, "Key_Shared")
			for i := range 8 {
				p.batch(2, key(i))
			}
			a.drain()
			b.drain()
		}},
}

func key(i int) string { return fmt.Sprintf("partition_key: %q", string(rune('a'+i))) }
