package model

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/backoff"
)

// modelPart models upstream's partitionConsumer of one topic: a queue that the broker fills up to its permits, a
// dispatcher that blocks while it sends the queue's head to the consumer's channel, a loop that sends acknowledgements
// and requests one after another, and a connection that breaks. A modelPart is also the Consumer field of the topic's
// ConsumerMessages.
type modelPart struct {
	pulsar.Consumer
	w     *modelWorld
	cfg   *modelConfig
	cons  *modelConsumer
	index int
	sub   *modelSub
	rng   *rand.Rand
	wake  chan struct{} // wakes the dispatcher

	state    modelState
	epoch    int // of the connection
	lastIn   time.Time
	lastOut  time.Time
	outgoing []*modelCommand // on their way
	queue    []*modelCopy
	permits  int
	seeking  bool

	pending   []*modelCommand // commands that the loop will send
	awaited   *modelCommand   // the command whose answer the loop waits for
	acks      modelGroup
	requests  map[*modelEntry]time.Time // when each request is due
	received  time.Time                 // when a message last arrived
	doubt     time.Time                 // when the Consumer was last notified that its messages may belong to another
	grabbed   time.Time                 // when the queue was last cleared
	isAway    bool                      // upstream finds no broker for the topic
	grabLater bool                      // upstream will connect when isAway ends
	backOff   backoff.Policy            // of the last reconnection
}

type modelState uint8

const (
	live modelState = iota
	dead            // the connection is lost, and upstream has not noticed
	reconnecting
	gone // closed
)

// modelDelivery is an entry on its way from the broker.
type modelDelivery struct {
	entry    *modelEntry
	why      string
	sent     time.Time
	count    uint32
	filtered []bool // acknowledged messages, which the broker leaves out
	left     []bool // unacknowledged messages of this delivery
	prevDone bool   // the entries before this one were acknowledged cumulatively
	otherGot bool   // another consumer had the entry, so only the broker's count is known
}

// modelCommand is a command for the broker.
type modelCommand struct {
	do     func() error // executes the command at the broker
	answer chan error   // nil if the command has no answer
	isAck  bool
	lost   bool
}

var (
	errModelAck        = errors.New("model: the broker refuses an acknowledgement")
	errModelConnection = errors.New("model: the connection is closed")
	errModelClosed     = errors.New("model: the consumer is closed")
)

func (p *modelPart) latency() time.Duration {
	return p.cfg.Latency/2 + time.Duration(p.rng.Int64N(int64(p.cfg.Latency)))
}

// fromBroker calls do when data that the broker sends now arrives, unless the connection is lost before that.
func (p *modelPart) fromBroker(do func()) {
	p.lastIn = later(p.lastIn, time.Now().Add(p.latency()))
	epoch := p.epoch
	p.w.at(p.lastIn, func() {
		p.w.mu.Lock()
		same := p.epoch == epoch && p.state == live
		p.w.mu.Unlock()
		if same {
			do()
		}
	})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a.Add(1)
	}
	return b
}

// toBroker sends a command, if there is a connection.
func (p *modelPart) toBroker(c *modelCommand) {
	if p.state != live {
		return
	}
	p.outgoing = append(p.outgoing, c)
	p.lastOut = later(p.lastOut, time.Now().Add(p.latency()))
	p.w.at(p.lastOut, p.w.locked(func() {
		if !c.lost {
			p.reaches(c)
		}
	}))
}

func (p *modelPart) reaches(c *modelCommand) {
	p.outgoing = p.outgoing[1:]
	c.lost = true // no longer on its way
	err := errModelConnection
	if p.sub.part == p {
		err = c.do()
	}
	if c.answer != nil {
		p.fromBroker(p.w.locked(func() { p.answered(c, err) }))
	}
}

func (p *modelPart) answered(c *modelCommand, err error) {
	if p.awaited == c {
		p.awaited = nil
	}
	c.answer <- err
	p.pump()
}

// put queues a command.
func (p *modelPart) put(c *modelCommand) {
	p.pending = append(p.pending, c)
	p.pump()
}

// pump models upstream's loop of events.
func (p *modelPart) pump() {
	for len(p.pending) > 0 && p.awaited == nil && (p.state == live || p.state == dead) {
		c := p.pending[0]
		p.pending = p.pending[1:]
		if c.answer != nil {
			p.awaited = c
		}
		p.toBroker(c)
	}
}

// flow collects permits, and sends them to the broker when they suffice for half a queue.
func (p *modelPart) flow(permits int) {
	p.permits += permits
	if p.permits >= max(1, p.cfg.Queue/2) {
		p.grant(p.permits)
		p.permits = 0
	}
}

func (p *modelPart) grant(permits int) {
	p.toBroker(&modelCommand{do: func() error {
		p.sub.permits += permits
		p.sub.dispatch()
		return nil
	}})
}

// arrive models upstream's MessageReceived. The caller does not hold mu.
func (p *modelPart) arrive(d *modelDelivery) {
	p.w.mu.Lock()
	epoch := p.epoch
	duplicates := 0
	var copies []*modelCopy
	for i := range d.left {
		switch {
		case d.filtered[i]:
		case p.acks.has(p, d.entry, i):
			duplicates++
		default:
			copies = append(copies, p.cons.copy(p, d, i))
		}
	}
	p.received = time.Now()
	p.w.note("%v arrives, %v, count %d, %d of %d", d.entry, d.why, d.count, len(copies), len(d.left))
	p.w.mu.Unlock()
	for _, c := range copies {
		p.cons.opts.Interceptors.BeforeConsume(c.message())
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.epoch != epoch {
		return
	}
	p.flow(duplicates)
	p.queue = append(p.queue, copies...)
	p.dispatch()
}

// dispatch wakes the dispatcher.
func (p *modelPart) dispatch() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// dispatcher models upstream's goroutine of this name.
func (p *modelPart) dispatcher() {
	for {
		p.w.mu.Lock()
		var to chan pulsar.ConsumerMessage
		var head *modelCopy
		var cm pulsar.ConsumerMessage
		staged := p.cons.stage.size > 0
		if staged {
			p.stageAll()
		}
		if len(p.queue) > 0 && !p.seeking && !staged {
			to, head = p.cons.opts.MessageChannel, p.queue[0]
			cm = head.message()
		}
		p.w.mu.Unlock()
		select {
		case to <- cm:
			p.w.mu.Lock()
			if cap(to) == 0 {
				head.received = time.Now()
			}
			p.recordTaken(head)
			if len(p.queue) > 0 && p.queue[0] == head {
				p.queue = p.queue[1:]
				p.flow(1)
			}
			p.w.mu.Unlock()
		case <-p.wake:
		case <-p.cons.stop:
			return
		}
	}
}

// recordTaken records that a copy left the queue. The caller holds mu.
func (p *modelPart) recordTaken(c *modelCopy) {
	c.taken, c.put = time.Now(), int(p.cons.puts.Add(1))
	p.sub.took(c)
}
