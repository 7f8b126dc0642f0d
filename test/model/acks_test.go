package model

import (
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/apache/pulsar-client-go/pulsar"
)

// AckID models upstream's ackIDCommon, where each delivery of a batch records which of its messages are not
// acknowledged.
func (p *modelPart) AckID(id pulsar.MessageID) error {
	e := p.cons.entryOf(p, id)
	if e == nil {
		return nil
	}
	p.w.mu.Lock()
	if p.state == gone {
		p.w.mu.Unlock()
		return errModelClosed
	}
	a := modelAck{entry: e}
	c, _ := id.(*modelCopy)
	if c != nil && c.entry.batch {
		c.left[c.index] = false
		if slices.Contains(c.left, true) {
			a.left = slices.Clone(c.left)
		}
	}
	var err error
	switch {
	case a.left != nil && !p.cfg.IndexAcks:
		p.w.mu.Unlock()
		return nil
	case p.cfg.Response:
		command := p.ackCommand([]modelAck{a}, false)
		p.confirmed(command, e)
		p.put(command)
		p.w.mu.Unlock()
		err = <-command.answer
	default:
		index := 0
		if c != nil {
			index = c.index
		}
		p.acks.add(p, e, index, a.left == nil)
		p.w.mu.Unlock()
	}
	p.cons.opts.Interceptors.OnAcknowledge(p, id)
	return err
}

// confirmed makes the broker answer the command c. The chance of entry e decides whether the answer is a refusal.
func (p *modelPart) confirmed(c *modelCommand, e *modelEntry) {
	c.answer = make(chan error, 1)
	n := p.chance(e)
	if n%6 != 0 {
		return
	}
	do, happens := c.do, n%18 == 0
	c.do = func() error {
		if happens { // the broker executes the command and refuses it
			_ = do()
		}
		p.w.note("the broker refuses an acknowledgement")
		return errModelAck
	}
}

// chance returns a random number that depends only on the entry and on how often chance was called for it. If
// acknowledgements must succeed, it returns 1, which means success.
func (p *modelPart) chance(e *modelEntry) int {
	if !p.cfg.AckErrors || e == nil || p.w.calm.Load() {
		return 1
	}
	e.chances++
	return rand.New(rand.NewPCG(p.cfg.base(), uint64(e.pos*1000+e.chances))).IntN(1000)
}

// AckIDList sends one command if AckWithResponse is set. In the model, it may fail for only some of the ids.
func (p *modelPart) AckIDList(ids []pulsar.MessageID) error {
	if !p.cfg.Response {
		for _, id := range ids {
			if err := p.AckID(id); err != nil {
				return err
			}
		}
		return nil
	}
	failed := pulsar.AckError{}
	var acks []modelAck
	entries := make([]*modelEntry, len(ids))
	for i, id := range ids {
		entries[i] = p.cons.entryOf(p, id)
	}
	p.w.mu.Lock()
	closed := p.state == gone
	fails := p.chance(entries[0])%3 == 0
	for i, id := range ids {
		a := modelAck{entry: entries[i]}
		if c, ok := id.(*modelCopy); ok && c.entry.batch {
			c.left[c.index] = false
			if slices.Contains(c.left, true) {
				a.left = slices.Clone(c.left)
			}
		}
		switch {
		case closed:
			failed[id] = errModelClosed
		case fails && p.chance(entries[i])%2 == 0:
			failed[id] = errModelAck
		case a.entry != nil && (a.left == nil || p.cfg.IndexAcks):
			acks = append(acks, a)
		}
	}
	if closed {
		p.w.mu.Unlock()
		return failed
	}
	command := p.ackCommand(acks, false)
	p.confirmed(command, entries[0])
	p.put(command)
	p.w.mu.Unlock()
	if err := <-command.answer; err != nil {
		for _, id := range ids {
			failed[id] = err
		}
		return failed
	}
	if len(failed) > 0 {
		return failed
	}
	for _, id := range ids {
		p.cons.opts.Interceptors.OnAcknowledge(p, id)
	}
	return nil
}

// AckIDCumulative acknowledges all messages up to id. If later messages of id's batch are unacknowledged and there are
// no index acks, it acknowledges only the entries before the batch.
func (p *modelPart) AckIDCumulative(id pulsar.MessageID) error {
	if p.cfg.Kind == pulsar.Shared || p.cfg.Kind == pulsar.KeyShared {
		return errors.New("model: cumulative acknowledgements are not for Shared")
	}
	c, ok := id.(*modelCopy)  // if not ok, the id has a type of upstream and names a whole entry
	_ = p.cons.entryOf(p, id) // checks that the id is this consumer's or upstream's
	p.w.mu.Lock()
	if p.state == gone {
		p.w.mu.Unlock()
		return errModelClosed
	}
	if !ok {
		if e := p.sub.lastUpTo(id); e != nil {
			return p.ackUpTo(id, e, modelAck{entry: e}, modelPlace{e.pos, max(0, int(id.BatchIdx()))})
		}
		p.w.mu.Unlock()
		return nil
	}
	for i := range c.index + 1 {
		c.left[i] = false
	}
	a, at := modelAck{entry: c.entry}, modelPlace{c.entry.pos, c.index}
	if slices.Contains(c.left, true) {
		a.left = slices.Clone(c.left)
	}
	if a.left != nil && !p.cfg.IndexAcks {
		if c.prevDone || c.entry.pos == 0 {
			p.w.mu.Unlock()
			return nil
		}
		c.prevDone = true
		a, at = modelAck{entry: p.sub.entries[c.entry.pos-1]}, modelPlace{c.entry.pos - 1, 0}
	}
	return p.ackUpTo(id, c.entry, a, at)
}

// ackUpTo sends the cumulative acknowledgement a. The chance of entry e decides the answer. The caller holds the
// world's mu; ackUpTo unlocks it.
func (p *modelPart) ackUpTo(id pulsar.MessageID, e *modelEntry, a modelAck, at modelPlace) (err error) {
	if p.cfg.Response {
		command := p.ackCommand([]modelAck{a}, true)
		p.confirmed(command, e)
		p.put(command)
		p.w.mu.Unlock()
		err = <-command.answer
	} else {
		p.acks.addUpTo(p, a, at)
		p.w.mu.Unlock()
	}
	p.cons.opts.Interceptors.OnAcknowledge(p, id)
	return err
}

// lastUpTo returns the last entry up to an id, or nil if there is none.
func (s *modelSub) lastUpTo(id pulsar.MessageID) (last *modelEntry) {
	for _, e := range s.entries {
		if e.ledger < id.LedgerID() || e.ledger == id.LedgerID() && e.entry <= id.EntryID() {
			last = e
		}
	}
	return last
}
