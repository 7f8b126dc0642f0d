package pulsartest

import (
	"fmt"
	"slices"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

type producer struct {
	session *session
	topic   *topic
	id      uint64
	name    string
	epoch   uint64
	mode    wire.AccessMode
	meta    []wire.KeyValue

	// Of a producer that wants exclusive access:
	topicEpoch uint64 // Absent, or the one that it had
	request    uint64 // to be answered when it has it
}

func (c *session) createProducer(m *wire.Producer) {
	s := c.server
	if p, ok := c.producers[m.Producer]; ok { // the client asks again
		c.producerReady(p, m.Request, nil)
		return
	}
	if err := s.faults.producers.hit(m.Topic); err != nil {
		c.fail(m.Request, err)
		return
	}
	t, err := s.topic(m.Topic, true)
	if err != nil {
		c.fail(m.Request, err)
		return
	}
	p := &producer{session: c, topic: t, id: m.Producer, name: m.Name, epoch: m.Epoch, mode: m.AccessMode,
		meta: m.Metadata, topicEpoch: m.TopicEpoch, request: m.Request}
	if p.name == "" {
		p.name = fmt.Sprintf("standalone-%d-%d", t.ledger, s.nextName)
		s.nextName++
	}
	version, err := s.addSchema(t.name, m.Schema)
	if err != nil {
		c.fail(m.Request, err)
		return
	}
	ready, err := t.addProducer(p)
	if err != nil {
		c.fail(m.Request, err)
		return
	}
	c.producers[p.id] = p
	delete(c.leftovers, p.id)
	if m.InitialSubscription != "" {
		t.subscription(m.InitialSubscription, wire.Earliest)
	}
	c.log.Debug("pulsartest: producer", "topic", t.name.String(), "producer", p.name)
	if !ready {
		c.send(&wire.ProducerSuccess{Request: m.Request, Name: p.name, LastSequenceID: -1, SchemaVersion: version}, nil)
		return
	}
	c.producerReady(p, m.Request, version)
}

func (c *session) producerReady(p *producer, request uint64, version []byte) {
	c.send(&wire.ProducerSuccess{Request: request, Name: p.name, LastSequenceID: -1, SchemaVersion: version,
		TopicEpoch: uint64(max(p.topic.epoch, 0)), Ready: true}, nil)
}

// addProducer lets p in, or has it wait for its turn.
func (t *topic) addProducer(p *producer) (ready bool, err error) {
	if t.terminated {
		return false, failf(wire.TopicTerminatedError, "Topic %s has already been terminated", t.name)
	}
	if old, ok := t.producers[p.name]; ok {
		// A client may replace its own producer. One of a connection that is gone but not noticed is no hindrance either.
		if !(p.session == old.session && p.id == old.id && p.epoch > old.epoch) && !old.session.gone {
			return false, failf(wire.ProducerBusy, "Producer with name '%s' is already connected to topic %s", p.name, t.name)
		}
		t.removeProducer(old)
		delete(old.session.producers, old.id)
	}
	exclusive := t.exclusiveProducer()
	switch p.mode {
	case wire.AccessShared:
		if exclusive != nil || len(t.waiting) > 0 {
			return false, failf(wire.ProducerBusy, "Topic %s has an existing exclusive producer: %s", t.name, exclusive.title())
		}
		t.producers[p.name] = p
		return true, nil
	case wire.AccessExclusive:
		if exclusive != nil || len(t.waiting) > 0 || len(t.producers) > 0 {
			return false, failf(wire.ProducerFenced, "Topic %s has other producers", t.name)
		}
	case wire.AccessFencing:
		t.fenceProducers()
	case wire.AccessWaitForExclusive:
		if len(t.producers) > 0 || len(t.waiting) > 0 {
			t.waiting = append(t.waiting, p)
			return false, nil
		}
	}
	return true, t.giveAccess(p)
}

// giveAccess makes p the exclusive producer, under a new epoch or the one that it had before.
func (t *topic) giveAccess(p *producer) error {
	if p.topicEpoch != wire.Absent && int64(p.topicEpoch) < t.epoch {
		return failf(wire.ProducerFenced, "Topic epoch is %d, the producer's %d", t.epoch, p.topicEpoch)
	}
	if p.topicEpoch == wire.Absent {
		t.epoch++
	} else {
		t.epoch = int64(p.topicEpoch)
	}
	t.producers[p.name] = p
	return nil
}

// fenceProducers takes the topic from all its producers, which learn so when they send.
func (t *topic) fenceProducers() {
	for _, p := range t.waiting {
		delete(p.session.producers, p.id)
		p.session.fail(p.request, failf(wire.ProducerFenced, "Fenced out"))
	}
	for _, p := range t.producers {
		delete(p.session.producers, p.id)
	}
	t.waiting = nil
	clear(t.producers)
}

func (p *producer) title() string {
	if p == nil {
		return "one that waits"
	}
	return p.name
}

func (t *topic) exclusiveProducer() *producer {
	for _, p := range t.producers {
		if p.mode != wire.AccessShared {
			return p
		}
	}
	return nil
}

// removeProducer takes p away; the next that waits for exclusive access has it.
func (t *topic) removeProducer(p *producer) {
	t.waiting = slices.DeleteFunc(t.waiting, func(w *producer) bool { return w == p })
	if t.producers[p.name] == p {
		delete(t.producers, p.name)
	}
	for len(t.producers) == 0 && len(t.waiting) > 0 {
		next := t.waiting[0]
		t.waiting = t.waiting[1:]
		if err := t.giveAccess(next); err != nil {
			delete(next.session.producers, next.id)
			next.session.fail(next.request, err)
			continue
		}
		next.session.producerReady(next, next.request, nil)
	}
}

// closeProducers tells all producers to look the topic up again.
func (t *topic) closeProducers() {
	for _, p := range sortedProducers(t.producers) {
		delete(p.session.producers, p.id)
		p.session.leftovers[p.id] = struct{}{}
		p.session.send(&wire.CloseProducer{Producer: p.id, Request: noRequest}, nil)
	}
	for _, p := range t.waiting {
		delete(p.session.producers, p.id)
		p.session.fail(p.request, failf(wire.ServiceNotReady, "Topic %s is unloaded", t.name))
	}
	t.waiting = nil
	clear(t.producers)
}

func sortedProducers(m map[string]*producer) []*producer {
	all := make([]*producer, 0, len(m))
	for _, p := range m {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *producer) int { return int(a.id) - int(b.id) })
	return all
}

// noRequest is the request of a command that the broker sends of its own.
const noRequest = ^uint64(0)

// publish stores e; nil is a message with a wrong checksum.
func (c *session) publish(m *wire.Send, e *entry) error {
	p, ok := c.producers[m.Producer]
	if !ok {
		if _, ok := c.leftovers[m.Producer]; ok {
			return nil // sent before the client learned that the producer is closed
		}
		return fmt.Errorf("producer %d is unknown", m.Producer)
	}
	if e == nil {
		c.send(&wire.SendError{Producer: p.id, Sequence: m.Sequence, Error: wire.ChecksumError, Message: "Checksum failed on the broker"}, nil)
		return nil
	}
	t := p.topic
	if err := c.server.faults.sends.hit(t.name.String()); err != nil {
		if err != errSwallowed {
			c.send(&wire.SendError{Producer: p.id, Sequence: m.Sequence, Error: codeOf(err), Message: err.Error()}, nil)
		}
		return nil
	}
	if t.terminated {
		c.send(&wire.SendError{Producer: p.id, Sequence: m.Sequence, Error: wire.TopicTerminatedError,
			Message: "Topic was terminated"}, nil)
		return nil
	}
	t.append(e)
	receipt := &wire.SendReceipt{Producer: p.id, Sequence: m.Sequence, HighestID: noRequest,
		ID: &wire.MessageID{Ledger: e.ledger, Entry: e.id, Partition: -1, BatchIndex: -1}}
	if m.HighestID > 0 {
		receipt.HighestID = m.HighestID
	}
	c.send(receipt, nil)
	return nil
}

func (c *session) closeProducer(m *wire.CloseProducer) {
	c.success(m.Request)
	if p, ok := c.producers[m.Producer]; ok {
		delete(c.producers, m.Producer)
		p.topic.removeProducer(p)
	}
}
