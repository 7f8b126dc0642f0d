package fidelity

// Batches, on brokers with and without batch-index acknowledgement.
var batchScenarios = []scenario{
	{name: "batch-partial-acks", run: batchPartialAcks},
	{name: "batch-partial-acks-indexed", indexed: true, run: batchPartialAcks},
	{name: "batch-acks-and-a-reconnect", run: batchAcksAndAReconnect},
	{name: "batch-acks-and-a-reconnect-indexed", indexed: true, run: batchAcksAndAReconnect},
	{name: "batch-acks-and-an-unload", run: batchAcksAndAnUnload},
	{name: "batch-acks-and-an-unload-indexed", indexed: true, run: batchAcksAndAnUnload},
	{name: "batch-acks-on-exclusive", run: batchAcksOnExclusive},
	{name: "batch-acks-on-exclusive-indexed", indexed: true, run: batchAcksOnExclusive},
	{name: "batch-acked-message-by-message", run: batchAckedOneByOne},
	{name: "batch-acked-message-by-message-indexed", indexed: true, run: batchAckedOneByOne},
	{name: "permits-of-batches", run: permitsOfBatches},
	{name: "permits-of-batches-indexed", indexed: true, run: permitsOfBatches},
	{name: "batch-goes-to-a-survivor", run: batchGoesToASurvivor},
	{name: "batch-goes-to-a-survivor-indexed", indexed: true, run: batchGoesToASurvivor},
	{name: "whole-batch-acks", run: func(s *script) {
		a := s.ready()
		a.listen(1, "Shared")
		first, second := a.batch(3), a.batch(1)
		a.drain()
		a.redeliver(1, first)
		a.drain()
		a.ack(1, first)
		a.drain()
		s.stats("one left")
		a.ack(1, second.keep(0, 1)) // a set without messages acknowledges the whole batch
		a.drain()
		s.stats("an empty set")
		a.redeliver(1)
		a.drain()
	}},
}

func batchPartialAcks(s *script) {
	a := s.ready()
	a.subscribe(1, "Shared")
	id := a.batch(5)
	a.flow(1, 1000)
	a.drain()
	a.ack(1, id.keep(0b11100, 5))
	a.redeliver(1, id)
	a.drain()
	a.redeliver(1, id)
	a.drain()
	s.stats("two acknowledged")
	a.ack(1, id.keep(0b11011, 5)) // the batch's redelivery count starts again
	a.redeliver(1, id)
	a.drain()
	a.redeliver(1, id)
	a.drain()
	a.ack(1, id.keep(0b10111, 5))
	a.ack(1, id.keep(0b01111, 5))
	a.drain()
	s.stats("all acknowledged, one by one")
	a.redeliver(1, id)
	a.drain()
	a.redeliver(1)
	a.drain()
	a.close()
	b := s.dial("b")
	b.listen(1, "Shared")
	b.drain()
}

func batchAcksAndAReconnect(s *script) {
	a := s.ready()
	a.subscribe(1, "Shared")
	id := a.batch(3)
	a.flow(1, 1000)
	a.drain()
	a.ack(1, id.keep(0b101, 3))
	a.drain()
	a.close()
	b := s.dial("b")
	b.listen(1, "Shared")
	b.drain()
	s.stats("after the reconnect")
}

func batchAcksAndAnUnload(s *script) {
	a := s.ready()
	a.listen(1, "Shared")
	a.drain()
	partly, other := a.batch(3), a.batch(3)
	a.publish("0")
	a.drain()
	a.ack(1, partly.keep(0b110, 3))
	a.ack(1, other.keep(0b011, 3))
	a.drain()
	s.callAdmin("PUT", "unload", "")
	a.drain()
	a.listen(1, "Shared")
	a.drain()
}

func batchAcksOnExclusive(s *script) {
	a := s.ready()
	a.subscribe(1, "Exclusive")
	first, second := a.batch(3), a.batch(3)
	a.flow(1, 100)
	a.drain()
	a.ack(1, first.keep(0b101, 3))
	a.redeliver(1)
	a.drain()
	a.ackUpTo(1, second.keep(0b100, 3))
	a.drain()
	s.stats("the first, and a part of the second")
	a.redeliver(1)
	a.drain()
	a.ack(1, second.keep(0b011, 3))
	a.drain()
	s.stats("both")
	a.redeliver(1)
	a.drain()
}

// A client with EnableBatchIndexAcknowledgment sends such acks: the set of each ack has the messages that stay
// unacknowledged, and the last ack has no set.
func batchAckedOneByOne(s *script) {
	a := s.ready()
	a.listen(1, "Shared")
	id := a.batch(3)
	a.drain()
	a.askAck(1, "Individual", id.keep(0b110, 3))
	s.stats("one acknowledged")
	a.askAck(1, "Individual", id.keep(0b110, 3))
	s.stats("the same again")
	a.askAck(1, "Individual", id.keep(0b100, 3))
	s.stats("two acknowledged")
	a.askAck(1, "Individual", id)
	s.stats("all acknowledged")
	a.redeliver(1)
	a.drain()
}

func permitsOfBatches(s *script) {
	a := s.ready()
	a.subscribe(1, "Shared")
	first := a.batch(5)
	a.batch(5)
	a.publish("single")
	a.flow(1, 1) // the broker sends the whole batch, which leaves -4 permits
	a.drain()
	a.flow(1, 4)
	a.drain()
	a.flow(1, 1)
	a.drain()
	a.ack(1, first.keep(0b11000, 5))
	a.flow(1, 4) // leaves 0 permits
	a.drain()
	s.stats("at zero")
	a.flow(1, 2)
	a.drain()
	a.redeliver(1, first)
	a.drain()
	s.stats("redelivered")
	a.publish("one more")
	a.drain()
	a.flow(1, 1)
	a.drain()
	a.flow(1, 4)
	a.drain()
	s.stats("in the end")
}

func batchGoesToASurvivor(s *script) {
	p := s.ready()
	a, b := s.dial("a"), s.dial("b")
	a.listen(1, "Shared")
	id := p.batch(4)
	a.drain()
	a.redeliver(1, id)
	a.drain()
	b.listen(2, "Shared")
	a.ack(1, id.keep(0b1100, 4))
	a.redeliver(1, id)
	a.drain()
	b.drain()
	b.ack(2, id.keep(0b1000, 4))
	a.drain()
	a.ack(1, id.keep(0b1000, 4)) // b has the batch
	a.drain()
	s.stats("b has it")
	a.close()
	b.drain()
	s.stats("b has it")
}
