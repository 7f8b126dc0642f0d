package fidelity

// Acknowledgements.
var ackScenarios = []scenario{
	{name: "cumulative-acks", run: cumulativeAcks},
	{name: "cumulative-acks-indexed", indexed: true, run: cumulativeAcks},
	{name: "cumulative-ack-in-the-first-batch-of-a-ledger", run: cumulativeAckBeforeTheFirstEntry},
	{name: "cumulative-ack-in-the-first-batch-of-a-ledger-indexed", indexed: true,
		run: cumulativeAckBeforeTheFirstEntry},
	{name: "cumulative-ack-on-shared", run: func(s *script) { cumulativeAckWhereThereIsNone(s, "Shared") }},
	{name: "cumulative-ack-on-key-shared", run: func(s *script) { cumulativeAckWhereThereIsNone(s, "Key_Shared") }},
	{name: "cumulative-ack-out-of-bounds", run: func(s *script) {
		a := s.ready()
		a.subscribe(1, "Exclusive")
		id := a.publish("0")
		a.publish("1")
		a.flow(1, 100)
		a.drain()
		a.askAck(1, "Cumulative", id.at(1000)) // past the end
		a.stats("past the end")
		other := id
		other.ledger += 1_000_000
		a.askAck(1, "Cumulative", other) // no such ledger
		a.stats("no such ledger")
		a.redeliver(1)
		a.drain()
		a.publish("2")
		a.drain()
		a.askAck(1, "Cumulative", id, id.at(1)) // only one id is allowed
		a.redeliver(1)
		a.drain()
	}},
	{name: "acks-with-response", run: func(s *script) {
		a := s.ready()
		a.listen(1, "Shared")
		a.drain()
		id := a.publish("0")
		a.drain()
		a.askAck(1, "Individual", id)
		a.askAck(1, "Individual", id)
		a.askAck(1, "Individual", id.at(1000))
		a.send(acks(9, "Individual", []messageID{id}), `ack { request_id: 99 }`) // by a consumer that does not exist
		a.drain()
	}},
	{name: "acks-of-what-is-not-there", run: func(s *script) {
		a := s.ready()
		a.listen(1, "Shared")
		id := a.publish("0")
		a.drain()
		other := id
		other.ledger += 1_000_000
		a.ack(1, other)
		a.ack(1, id.at(7))
		a.ack(1, id.at(-1))
		a.drain()
		a.stats("nothing acknowledged")
		a.publish("1")
		a.drain()
		a.ack(1, id)
		a.ack(1, id)
		a.drain()
		a.stats("one acknowledged")
		a.redeliver(1)
		a.drain()
	}},
	{name: "many-acks-at-once", run: func(s *script) {
		a := s.ready()
		a.listen(1, "Shared")
		var ids []messageID
		for _, p := range []string{"0", "1", "2", "3", "4"} {
			ids = append(ids, a.publish(p))
		}
		a.drain()
		a.askAck(1, "Individual", ids[4], ids[0], ids[0], ids[2].at(50), ids[2])
		a.stats("three acknowledged")
		a.redeliver(1)
		a.drain()
	}},
	{name: "ack-of-another-consumers-message", run: func(s *script) {
		p := s.ready()
		a, b := s.dial("a"), s.dial("b")
		a.subscribe(1, "Shared")
		id := p.publish("0")
		other := p.publish("1")
		a.flow(1, 100)
		a.drain()
		b.subscribe(2, "Shared")
		b.ack(2, id)
		b.redeliver(2, other)
		b.flow(2, 10)
		b.drain()
		s.stats("b acknowledged what a has")
		a.redeliver(1)
		a.drain()
		b.drain()
		a.close()
		b.drain()
	}},
	{name: "individual-acks-on-exclusive", run: func(s *script) { individualAcks(s, "Exclusive") }},
	{name: "individual-acks-on-failover", run: func(s *script) { individualAcks(s, "Failover") }},
	{name: "acks-outlive-the-consumer", run: func(s *script) {
		a := s.ready()
		a.listen(1, "Shared")
		var ids []messageID
		for _, p := range []string{"0", "1", "2", "3"} {
			ids = append(ids, a.publish(p))
		}
		a.drain()
		a.ack(1, ids[2], ids[0])
		a.closeConsumer(1)
		a.listen(2, "Exclusive")
		a.drain()
		a.ack(2, ids[1])
		a.closeConsumer(2)
		a.listen(3, "Key_Shared")
		a.drain()
		s.stats("one left")
	}},
	{name: "acks-of-a-message-that-waits-to-be-sent-again", run: func(s *script) {
		a := s.ready()
		a.subscribe(1, "Shared")
		first, second := a.publish("0"), a.publish("1")
		a.flow(1, 2)
		a.drain()
		a.redeliver(1, first, second) // no permits are left
		a.drain()
		a.ack(1, first)
		a.drain()
		a.flow(1, 10)
		a.drain()
		s.stats("one left")
	}},
}

func cumulativeAcks(s *script) {
	a := s.ready()
	a.subscribe(1, "Exclusive")
	var ids []messageID
	for _, p := range []string{"0", "1", "2", "3"} {
		ids = append(ids, a.publish(p))
	}
	ids = append(ids, a.batch(4))
	a.publish("5")
	a.flow(1, 100)
	a.drain()
	a.ackUpTo(1, ids[2])
	a.redeliver(1)
	a.drain()
	a.ackUpTo(1, ids[0]) // already acknowledged
	a.redeliver(1)
	a.drain()
	a.ackUpTo(1, ids[4].keep(0b1100, 4))
	a.redeliver(1)
	a.drain()
	a.stats("half of the batch")
	a.ackUpTo(1, ids[4])
	a.redeliver(1)
	a.drain()
}

// To acknowledge in the middle of a batch, a client without batch-index acks acknowledges up to the entry before the
// batch. If the batch is the first entry of its ledger, that is entry -1.
func cumulativeAckBeforeTheFirstEntry(s *script) {
	a := s.ready()
	a.subscribe(1, "Exclusive")
	first := a.batch(4)
	a.publish("1")
	a.flow(1, 100)
	a.drain()
	a.askAck(1, "Cumulative", first.at(-1))
	a.stats("acknowledged")
	a.redeliver(1)
	a.drain()
	a.askAck(1, "Cumulative", first)
	a.redeliver(1)
	a.drain()
	s.callAdmin("PUT", "unload", "")
	a.drain()
	a.produce(1)
	second := a.publish("2")
	a.listen(1, "Exclusive")
	a.drain()
	a.askAck(1, "Cumulative", second.at(-1)) // acknowledges the whole previous ledger
	a.stats("acknowledged")
	a.redeliver(1)
	a.drain()
}

func cumulativeAckWhereThereIsNone(s *script, kind string) {
	a := s.ready()
	a.subscribe(1, kind)
	a.publish("0")
	id := a.publish("1")
	a.flow(1, 100)
	a.drain()
	a.askAck(1, "Cumulative", id)
	a.redeliver(1)
	a.drain()
	a.close()
	b := s.dial("b")
	b.listen(1, kind)
	b.drain()
}

func individualAcks(s *script, kind string) {
	a := s.ready()
	a.subscribe(1, kind)
	var ids []messageID
	for _, p := range []string{"0", "1", "2", "3"} {
		ids = append(ids, a.publish(p))
	}
	a.flow(1, 100)
	if kind == "Failover" {
		s.electionIsOver()
	}
	a.drain()
	a.ack(1, ids[1], ids[3])
	a.stats("two acknowledged")
	a.redeliver(1, ids[2])
	a.drain()
	a.publish("4")
	a.drain()
	a.ack(1, ids[0])
	a.redeliver(1)
	a.drain()
}
