package model

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// modelConsumer models the consumer that client.Subscribe returns for opts, of one or several topics.
type modelConsumer struct {
	pulsar.Consumer
	w          *modelWorld
	cfg        *modelConfig
	opts       pulsar.ConsumerOptions
	parts      []*modelPart
	stop       chan struct{}
	closed     sync.Once
	reconnects atomic.Int32
	lost       time.Time    // when upstream last noticed that a connection was lost; guarded by the world's lock
	copies     []*modelCopy // a copy's index here is its payload
	puts       atomic.Int32 // how many copies were put into the channel or its buffer
	stage      modelStage
}

// had returns the number of copies that the Consumer has taken from the channel.
func (m *modelConsumer) had() int {
	if m.stage.size > 0 {
		return int(m.stage.gone.Load())
	}
	return int(m.puts.Load()) - len(m.opts.MessageChannel)
}

// isBuffered reports whether a copy of an entry is in the channel, or its buffer. The caller holds the world's lock.
func (m *modelConsumer) isBuffered(e *modelEntry) bool {
	had := m.had()
	return slices.ContainsFunc(m.copies, func(c *modelCopy) bool { return c.entry == e && c.put > had })
}

// modelCopy is one delivery of one message, and its id.
type modelCopy struct {
	*modelDelivery
	part    *modelPart
	index   int
	serial  int
	epoch   int
	taken   time.Time // when it left the queue
	put     int       // the number of this copy among those that puts counts
	cleared bool      // a reconnection removed it from the queue

	received time.Time // when the Consumer got it; zero if unknown
}

func newModelConsumer(w *modelWorld, cfg *modelConfig, opts pulsar.ConsumerOptions, acked func(*modelEntry, int)) *modelConsumer {
	m := &modelConsumer{w: w, cfg: cfg, opts: opts, stop: make(chan struct{})}
	m.stage.begin(cfg, opts.MessageChannel)
	if m.stage.size > 0 {
		defer func() { go m.forward() }()
	}
	for i := range cfg.Topics {
		name := "persistent://public/default/model"
		if i > 0 {
			name += "-other" + strconv.Itoa(i)
		}
		p := &modelPart{w: w, cfg: cfg, cons: m, index: i, rng: rand.New(rand.NewPCG(cfg.base(), uint64(10+i))),
			wake: make(chan struct{}, 1), requests: map[*modelEntry]time.Time{}}
		p.acks.entries = map[*modelEntry][]bool{}
		p.sub = &modelSub{w: w, cfg: cfg, name: name, ledger: int64(7 + 1000*i), rng: rand.New(rand.NewPCG(cfg.base(), uint64(20+i))), acked: acked}
		m.parts = append(m.parts, p)
		go p.dispatcher()
		w.mu.Lock()
		p.sub.connect(p)
		p.became(true)
		p.grant(cfg.Queue)
		w.mu.Unlock()
	}
	return m
}

func (m *modelConsumer) Name() string                        { return "model" }
func (m *modelConsumer) Subscription() string                { return "model" }
func (m *modelConsumer) Chan() <-chan pulsar.ConsumerMessage { return m.opts.MessageChannel }

func (m *modelConsumer) Receive(ctx context.Context) (pulsar.Message, error) {
	for {
		select {
		case <-m.stop:
			return nil, errModelClosed
		case cm := <-m.opts.MessageChannel:
			return cm.Message, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (m *modelConsumer) Close() {
	m.closed.Do(func() {
		m.w.mu.Lock()
		for _, p := range m.parts {
			if p.state == live {
				p.deliverAcks()
			}
			for _, c := range p.outgoing {
				c.lost = true
			}
			p.state, p.outgoing = gone, nil
			p.epoch++
			p.sub.part = nil
			if p.awaited != nil {
				p.pending = append(p.pending, p.awaited)
			}
			for _, c := range p.pending {
				if c.answer != nil {
					c.answer <- errModelClosed
				}
			}
			p.pending, p.awaited = nil, nil
		}
		close(m.stop)
		m.w.mu.Unlock()
		for _, p := range m.parts {
			m.opts.Interceptors.OnConsumerClose(p, nil)
		}
	})
}

// copy returns a new copy of a message of a delivery.
func (m *modelConsumer) copy(p *modelPart, d *modelDelivery, index int) *modelCopy {
	c := &modelCopy{modelDelivery: d, part: p, index: index, serial: len(m.copies), epoch: p.epoch}
	m.copies = append(m.copies, c)
	return c
}

// entryOf returns the entry of an id. The id must be of a message of p, or have a type of upstream.
func (m *modelConsumer) entryOf(p *modelPart, id pulsar.MessageID) *modelEntry {
	if c, ok := id.(*modelCopy); ok {
		if c.part != p {
			m.w.fail("the consumer of %v gets the id %v of %v", p.sub.name, id, c.part.sub.name)
		}
		return c.entry
	}
	if t := reflect.TypeOf(id); t.Kind() != reflect.Pointer || t.Elem().PkgPath() != reflect.TypeFor[pulsar.ConsumerOptions]().PkgPath() {
		m.w.fail("upstream gets the id %v, which has a type of another package: %T", id, id)
		return nil
	}
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	for _, e := range p.sub.entries {
		if e.ledger == id.LedgerID() && e.entry == id.EntryID() {
			return e
		}
	}
	return nil
}

// partOf returns the consumer of the id's topic.
func (m *modelConsumer) partOf(id pulsar.MessageID) (*modelPart, error) {
	if c, ok := id.(*modelCopy); ok {
		return c.part, nil
	}
	if len(m.parts) > 1 {
		return nil, fmt.Errorf("model: %v does not name its topic", id)
	}
	return m.parts[0], nil
}

func (m *modelConsumer) AckID(id pulsar.MessageID) error {
	p, err := m.partOf(id)
	if err != nil {
		return err
	}
	return p.AckID(id)
}

func (m *modelConsumer) AckIDCumulative(id pulsar.MessageID) error {
	p, err := m.partOf(id)
	if err != nil {
		return err
	}
	return p.AckIDCumulative(id)
}

func (m *modelConsumer) AckIDList(ids []pulsar.MessageID) error {
	failed := pulsar.AckError{}
	for _, p := range m.parts {
		var list []pulsar.MessageID
		for _, id := range ids {
			if of, err := m.partOf(id); err != nil {
				failed[id] = err
			} else if of == p {
				list = append(list, id)
			}
		}
		if len(list) == 0 {
			continue
		}
		var some pulsar.AckError
		switch err := p.AckIDList(list); {
		case errors.As(err, &some):
			maps.Copy(failed, some)
		case err != nil:
			for _, id := range list {
				failed[id] = err
			}
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return failed
}

func (m *modelConsumer) NackID(id pulsar.MessageID) {
	if p, err := m.partOf(id); err == nil {
		p.NackID(id)
	}
}

func (m *modelConsumer) Ack(msg pulsar.Message) error           { return m.AckID(msg.ID()) }
func (m *modelConsumer) AckCumulative(msg pulsar.Message) error { return m.AckIDCumulative(msg.ID()) }
func (m *modelConsumer) Nack(msg pulsar.Message)                { m.NackID(msg.ID()) }
func (p *modelPart) Ack(msg pulsar.Message) error               { return p.AckID(msg.ID()) }
func (p *modelPart) AckCumulative(msg pulsar.Message) error     { return p.AckIDCumulative(msg.ID()) }
func (p *modelPart) Nack(msg pulsar.Message)                    { p.NackID(msg.ID()) }
func (p *modelPart) Name() string                               { return "model" }
func (p *modelPart) Subscription() string                       { return "model" }
func (p *modelPart) Chan() <-chan pulsar.ConsumerMessage        { return p.cons.Chan() }

// SeekByTime sets the cursor to the first entry published at t or later.
func (m *modelConsumer) SeekByTime(t time.Time) error {
	return m.seek(func(e *modelEntry) bool { return !e.published.Before(t) })
}

// Seek sets the cursor to the first entry, whatever the id.
func (m *modelConsumer) Seek(pulsar.MessageID) error {
	return m.seek(func(*modelEntry) bool { return true })
}

func (m *modelConsumer) seek(to func(*modelEntry) bool) error {
	if len(m.parts) > 1 {
		return fmt.Errorf("model: seek is for one topic")
	}
	p := m.parts[0]
	m.w.mu.Lock()
	p.seeking = true
	p.dispatch()
	m.w.mu.Unlock()
	for len(m.opts.MessageChannel) > 0 {
		<-m.opts.MessageChannel
	}
	m.w.mu.Lock()
	m.stage.queue = nil
	for _, c := range p.acks.flush(p) {
		p.put(c)
	}
	c := &modelCommand{answer: make(chan error, 1), do: func() error {
		pos := slices.IndexFunc(p.sub.entries, to)
		if pos < 0 {
			pos = len(p.sub.entries)
		}
		p.sub.disconnect()
		p.sub.reset(pos)
		return nil
	}}
	p.put(c)
	m.w.mu.Unlock()
	if err := <-c.answer; err != nil {
		return err
	}
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	p.queue, p.state = nil, dead
	p.epoch++
	p.dispatch()
	lookup := p.latency()
	m.w.at(time.Now().Add(p.latency()), func() { p.reconnect(lookup) })
	return nil
}
