package fidelity

import (
	"strings"
	"time"
)

// Producers: access, fences and refusals.
var producerScenarios = []scenario{
	{name: "producers", differs: map[string]string{"3.0": "a producer that waits for exclusive access is forgotten " +
		"when the last shared producer closes"},
		run: func(s *script) {
			a := s.dial("a")
			p := `producer_name: "p"`
			a.newProducer(1, p)
			a.newProducer(1, p) // the client asks again
			a.newProducer(2, p)
			a.ask(`producer { topic: "" producer_id: 3 user_provided_producer_name: false }`,
				`producer { topic: "`+s.topic+`" }`)
			a.newProducer(4, "producer_access_mode: Exclusive")
			a.newProducer(5, "producer_access_mode: WaitForExclusive")
			a.closeProducer(1)
			a.closeProducer(3)
			a.drain()
			a.newProducer(6)
			a.newProducer(7, "producer_access_mode: ExclusiveWithFencing")
			a.drain()
			a.trySend(7, "0")
			a.sendData(join(parse("MessageMetadata", `producer_name: "p7" sequence_id: 4 publish_time: 1`),
				[]byte("0")),
				`send { producer_id: 7 sequence_id: 4 num_messages: 1 highest_sequence_id: 6 }`)
			a.drain()
			a.trySend(5, "by a producer that was fenced")
			a.drain()
		}},
	{name: "exclusive-producer", run: func(s *script) {
		a, b := s.dial("a"), s.dial("b")
		a.newProducer(1, "producer_access_mode: Exclusive")
		b.newProducer(2)
		b.newProducer(3, "producer_access_mode: Exclusive")
		b.newProducer(4, "producer_access_mode: WaitForExclusive")
		b.newProducer(5, "producer_access_mode: WaitForExclusive")
		b.newProducer(6)
		a.trySend(1, "0")
		a.close()
		b.drain()
		b.trySend(4, "1")
		b.closeProducer(4)
		b.drain()
		b.trySend(5, "2")
		b.closeProducer(5)
		b.drain()
		b.newProducer(7)
	}},
	{name: "exclusive-producer-comes-too-late",
		differs: map[string]string{"3.0": "a producer that waits for exclusive access is forgotten when the last " +
			"shared producer closes"},
		run: func(s *script) {
			a := s.dial("a")
			a.newProducer(1)
			a.newProducer(2, "producer_access_mode: Exclusive")
			a.newProducer(3, "producer_access_mode: WaitForExclusive")
			a.newProducer(4) // while another waits
			a.closeProducer(1)
			a.drain()
			a.trySend(3, "0")
		}},
	{name: "producer-fences-others", run: func(s *script) {
		a, b := s.dial("a"), s.dial("b")
		a.newProducer(1)
		a.newProducer(2)
		a.trySend(1, "0")
		b.newProducer(3, "producer_access_mode: ExclusiveWithFencing")
		a.drain()
		b.trySend(3, "1")
		a.newProducer(1)
		b.newProducer(4, "producer_access_mode: ExclusiveWithFencing", "topic_epoch: 0")
		b.drain()
		b.newProducer(5, "producer_access_mode: Exclusive", "topic_epoch: 0") // an older epoch
		b.drain()
	}},
	{name: "producer-fences-those-who-wait", run: func(s *script) {
		a, b := s.dial("a"), s.dial("b")
		a.newProducer(1, "producer_access_mode: Exclusive")
		a.newProducer(2, "producer_access_mode: WaitForExclusive")
		a.newProducer(3, "producer_access_mode: WaitForExclusive")
		b.newProducer(4, "producer_access_mode: ExclusiveWithFencing")
		a.drain()
		a.trySend(1, "fenced")
		a.drain()
		b.closeProducer(4)
		b.newProducer(5)
	}},
	{name: "exclusive-producer-comes-back", run: func(s *script) {
		a := s.dial("a")
		a.newProducer(1, "producer_access_mode: Exclusive")
		a.closeProducer(1)
		a.newProducer(2, "producer_access_mode: Exclusive")
		a.closeProducer(2)
		a.newProducer(1, "producer_access_mode: Exclusive", "topic_epoch: 0") // producer 2 had access since
		a.newProducer(3, "producer_access_mode: Exclusive", "topic_epoch: 1")
	}},
	{name: "producer-names", run: func(s *script) {
		a, b := s.dial("a"), s.dial("b")
		a.newProducer(1, `producer_name: "n" user_provided_producer_name: true epoch: 0`)
		b.newProducer(1, `producer_name: "n" user_provided_producer_name: true epoch: 1`)
		b.newProducer(2, `producer_name: "n" user_provided_producer_name: false epoch: 1`)
		a.newProducer(3, `producer_name: "m" user_provided_producer_name: false epoch: 0`)
		b.newProducer(3, `producer_name: "m" user_provided_producer_name: false epoch: 0`)
		// a client that lost its connection
		b.newProducer(4, `producer_name: "m" user_provided_producer_name: false epoch: 1`)
		a.drain()
		a.close()
		b.newProducer(5, `producer_name: "n"`)
	}},
	{name: "initial-subscription", run: func(s *script) {
		a := s.dial("a")
		a.newProducer(1, `initial_subscription_name: "s"`)
		a.publish("0")
		a.closeProducer(1)
		s.callAdmin("GET", "subscriptions", "")
		s.stats("a subscription without a consumer")
		a.listen(1, "Shared", "initialPosition: Latest")
		a.drain()
	}},
	{name: "send-by-an-unknown-producer", run: func(s *script) {
		a := s.ready()
		a.trySend(7, "0")
		a.drain()
	}},
	{name: "send-after-close", run: func(s *script) {
		a := s.ready()
		a.closeProducer(1)
		a.trySend(1, "0")
		a.drain()
	}},
	{name: "send-with-a-wrong-checksum", run: func(s *script) {
		a := s.ready()
		data := join(parse("MessageMetadata", `producer_name: "p1" sequence_id: 0 publish_time: 1`), []byte("payload"))
		data[len(data)-1]++
		a.sendData(data, `send { producer_id: 1 sequence_id: 0 num_messages: 1 }`)
		a.drain()
		a.newProducer(2)
	}},
	{name: "send-counts-that-do-not-match", run: func(s *script) {
		a := s.ready()
		a.listen(1, "Shared")
		a.sendData(join(parse("MessageMetadata", `producer_name: "p1" sequence_id: 0 publish_time: 1`),
			[]byte("single")),
			`send { producer_id: 1 sequence_id: 0 num_messages: 5 }`)
		a.drain()
		a.sendData(join(parse("MessageMetadata",
			`producer_name: "p1" sequence_id: 1 publish_time: 1 num_messages_in_batch: 4`), []byte("batch")),
			`send { producer_id: 1 sequence_id: 1 num_messages: 1 }`)
		a.drain()
		s.stats("in the end")
	}},
	{name: "message-too-large", run: func(s *script) {
		a := s.ready()
		a.trySend(1, strings.Repeat("x", 5*1024*1024-100)) // below the limit, with the metadata
		a.seq++
		a.sendData(join(parse("MessageMetadata", `producer_name: "p1" sequence_id: 9 publish_time: 1`),
			make([]byte, 5*1024*1024+1)),
			`send { producer_id: 1 sequence_id: 9 num_messages: 1 }`)
		a.drain()
	}},
	{name: "frame-too-large", run: func(s *script) {
		a := s.ready()
		_, _ = a.net.Write([]byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 4})
		a.drain()
	}},
	{name: "sequence-ids-are-not-judged", run: func(s *script) {
		a := s.ready()
		for _, seq := range []uint64{5, 5, 3} {
			a.seq = seq
			a.trySend(1, "m")
		}
		a.listen(1, "Shared")
		a.drain()
		a.closeProducer(1)
		a.newProducer(1)
	}},
	{name: "producers-and-an-unload",
		differs: map[string]string{"3.0": "a producer that waits for exclusive access gets no answer when the topic is unloaded"},
		run: func(s *script) {
			a := s.ready()
			a.newProducer(2, "producer_access_mode: WaitForExclusive")
			s.callAdmin("PUT", "unload", "")
			a.drain()
			a.newProducer(1)
			a.trySend(1, "0")
		}},
	{name: "producer-of-a-lost-connection", run: func(s *script) {
		a := s.ready()
		a.trySend(1, "0")
		a.close()
		time.Sleep(s.quiet)
		b := s.dial("b")
		b.newProducer(1)
		b.trySend(1, "1")
		b.listen(1, "Shared")
		b.drain()
	}},
}
