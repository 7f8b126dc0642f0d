package fidelity

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

// This file has the commands that most scenarios need. The argument more, in text form, replaces fields of the command.

// ready returns a connection with producer 1 of the script's topic.
func (s *script) ready() *conn {
	c := s.dial("a")
	c.produce(1)
	return c
}

// produce creates a producer; the test fails if the broker refuses it.
func (c *conn) produce(id uint64, more ...string) {
	a := c.call(fmt.Sprintf(`producer { topic: %q producer_id: %d producer_name: "p%d" }`, c.topic, id, id),
		wrap("producer", more)...)
	require.Equal(c.t, "PRODUCER_SUCCESS", a.name, "%s", c.describe(a))
}

// newProducer creates a producer and records the broker's answer.
func (c *conn) newProducer(id uint64, more ...string) {
	c.ask(fmt.Sprintf(`producer { topic: %q producer_id: %d producer_name: "p%d" }`, c.topic, id, id),
		wrap("producer", more)...)
}

// wrap puts each text into the command's braces.
func wrap(command string, texts []string) []string {
	var out []string
	for _, text := range texts {
		out = append(out, fmt.Sprintf("%s { %s }", command, text))
	}
	return out
}

// publish sends a message from producer 1 and returns its id; more has metadata.
func (c *conn) publish(payload string, more ...string) messageID {
	return c.publishBy(1, payload, 0, more...)
}

// batch sends n messages from producer 1 as one entry.
func (c *conn) batch(n int, more ...string) messageID {
	var payload []byte
	for i := range n {
		text := fmt.Sprint(i)
		single, err := proto.Marshal(parse("SingleMessageMetadata", fmt.Sprintf("payload_size: %d", len(text))))
		require.NoError(c.t, err)
		payload = binary.BigEndian.AppendUint32(payload, uint32(len(single)))
		payload = append(append(payload, single...), text...)
	}
	return c.publishBy(1, string(payload), n, more...)
}

func (c *conn) publishBy(producer uint64, payload string, batch int, more ...string) messageID {
	a := c.sendMessage(producer, payload, batch, more...)
	require.Equal(c.t, "SEND_RECEIPT", a.name, "%s", c.describe(a))
	id := readID(a.cmd.Get(field(a.cmd, "message_id")).Message())
	c.id(id) // numbers the ledger
	return id
}

// sendMessage sends a message. If batch is not 0, it sends a batch with that number of messages. It returns the answer.
func (c *conn) sendMessage(producer uint64, payload string, batch int, more ...string) arrival {
	seq := c.seq
	c.seq++
	meta := fmt.Sprintf(`producer_name: "p%d" sequence_id: %d publish_time: %d`, producer, seq, time.Now().UnixMilli())
	send := fmt.Sprintf(`send { producer_id: %d sequence_id: %d num_messages: %d }`, producer, seq, max(batch, 1))
	if batch > 0 {
		meta += fmt.Sprintf(" num_messages_in_batch: %d", batch)
	}
	c.sendData(join(parse("MessageMetadata", append([]string{meta}, more...)...), []byte(payload)), send)
	return c.await(func(a arrival) bool {
		return (a.name == "SEND_RECEIPT" || a.name == "SEND_ERROR") && number(a.cmd, "sequence_id") == seq
	})
}

// trySend sends a message and records the answer.
func (c *conn) trySend(producer uint64, payload string, more ...string) {
	c.note("%s < %s", c.name, c.describe(c.sendMessage(producer, payload, 0, more...)))
}

// subscribe creates consumer id of subscription s, which begins with the earliest message. It records the answer only
// if it is not SUCCESS.
func (c *conn) subscribe(id uint64, kind string, more ...string) {
	a := c.call(fmt.Sprintf(`subscribe { topic: %q subscription: "s" subType: %s consumer_id: %d consumer_name: "c%d" initialPosition: Earliest }`,
		c.topic, kind, id, id), wrap("subscribe", more)...)
	if a.name != "SUCCESS" {
		c.note("%s < subscribe: %s", c.name, c.describe(a))
	}
}

func (c *conn) flow(id uint64, n int) {
	c.send(fmt.Sprintf(`flow { consumer_id: %d messagePermits: %d }`, id, n))
	c.fence() // before another connection acts
}

// listen subscribes a consumer and permits a hundred messages.
func (c *conn) listen(id uint64, kind string, more ...string) {
	c.subscribe(id, kind, more...)
	c.flow(id, 100)
}

func (c *conn) ack(id uint64, ids ...messageID) { c.send(acks(id, "Individual", ids)) }

func (c *conn) ackUpTo(id uint64, upTo messageID) { c.send(acks(id, "Cumulative", []messageID{upTo})) }

// askAck acknowledges with a request id, and records the answer.
func (c *conn) askAck(id uint64, kind string, ids ...messageID) {
	c.send(acks(id, kind, ids), fmt.Sprintf(`ack { request_id: %d }`, c.nextRequest()))
	c.note("%s < %s", c.name, c.describe(c.await(func(a arrival) bool { return a.name == "ACK_RESPONSE" })))
}

func acks(id uint64, kind string, ids []messageID) string {
	text := fmt.Sprintf(`ack { consumer_id: %d ack_type: %s`, id, kind)
	for _, i := range ids {
		text += fmt.Sprintf(" message_id { %s }", i.text())
	}
	return text + " }"
}

// redeliver requests the messages with these ids, or all messages if there are no ids.
func (c *conn) redeliver(id uint64, ids ...messageID) {
	text := fmt.Sprintf(`redeliverUnacknowledgedMessages { consumer_id: %d`, id)
	for _, i := range ids {
		text += fmt.Sprintf(" message_ids { %s }", i.text())
	}
	c.send(text + " }")
}

// closeConsumer, closeProducer and unsubscribe wait after the answer, since the broker may still be working on the
// command.

func (c *conn) closeConsumer(id uint64) {
	c.ask(fmt.Sprintf(`close_consumer { consumer_id: %d }`, id))
	time.Sleep(c.quiet)
}

func (c *conn) closeProducer(id uint64) {
	c.ask(fmt.Sprintf(`close_producer { producer_id: %d }`, id))
	time.Sleep(c.quiet)
}

func (c *conn) unsubscribe(id uint64) {
	c.ask(fmt.Sprintf(`unsubscribe { consumer_id: %d }`, id))
	time.Sleep(c.quiet)
}

// seek moves the subscription of a consumer, and subscribes again as a client does.
func (c *conn) seek(id uint64, kind, to string) {
	c.ask(fmt.Sprintf(`seek { consumer_id: %d %s }`, id, to))
	c.drain()
	c.listen(id, kind)
	c.drain()
}
