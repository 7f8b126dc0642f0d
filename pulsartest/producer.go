package pulsartest

import (
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

	// For a producer that wants exclusive access:
	topicEpoch uint64 // the producer's earlier epoch, or Absent
	request    uint64 // answered when the producer has access
}

// ready notifies the client that it may send.
func (p *producer) ready(request uint64, schema []byte) {
	p.session.send(&cmdProducerSuccess{Request: request, Name: p.name, LastSequenceID: -1, SchemaVersion: schema,
		TopicEpoch: uint64(max(p.topic.epoch, 0)), Ready: true}, nil)
}

// addProducer adds p to the topic, or makes it wait for exclusive access.
func (t *topic) addProducer(p *producer) (ready bool, err error) {
	if t.terminated {
		return false, failf(wire.TopicTerminatedError, "Topic %s has already been terminated", t.name)
	}
	if old, ok := t.producers[p.name]; ok {
		// A client may replace its own producer, or one of a connection that is gone.
		if !(p.session == old.session && p.id == old.id && p.epoch > old.epoch) && !old.session.gone {
			return false, failf(wire.ProducerBusy, "Producer with name '%s' is already connected to topic %s", p.name,
				t.name)
		}
		t.removeProducer(old)
		delete(old.session.producers, old.id)
	}
	exclusive := t.exclusiveProducer()
	switch p.mode {
	case wire.AccessShared:
		if exclusive != nil || len(t.waiting) > 0 {
			return false, failf(wire.ProducerBusy, "Topic %s has an existing exclusive producer: %s", t.name,
				exclusive.title())
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

// giveAccess makes p the exclusive producer, under a new epoch, or under the epoch that p had before.
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

// fenceProducers removes all producers of the topic. Producers that wait for access get an error at once; the others
// learn that they are fenced when they send.
func (t *topic) fenceProducers() {
	for _, p := range t.waiting {
		delete(p.session.producers, p.id)
		p.session.send(result(p.request, failf(wire.ProducerFenced, "Fenced out")), nil)
	}
	for _, p := range t.producers {
		delete(p.session.producers, p.id)
	}
	t.waiting = nil
	clear(t.producers)
}

func (p *producer) title() string {
	if p == nil {
		return "a producer that waits for access"
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

// removeProducer removes p. If the topic then has no producer, the next producer that waits for exclusive access gets
// access.
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
			next.session.send(result(next.request, err), nil)
			continue
		}
		next.ready(next.request, nil)
	}
}

// closeProducers makes all producers look the topic up again.
func (t *topic) closeProducers() {
	for _, p := range sortedProducers(t.producers) {
		delete(p.session.producers, p.id)
		p.session.leftovers[p.id] = struct{}{}
		p.session.send(&cmdCloseProducer{Producer: p.id, Request: noRequest}, nil)
	}
	for _, p := range t.waiting {
		delete(p.session.producers, p.id)
		p.session.send(result(p.request, failf(wire.ServiceNotReady, "Topic %s is unloaded", t.name)), nil)
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

// noRequest is the request ID of a command that does not answer a request.
const noRequest = ^uint64(0)
