package model

import (
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// modelStage models a buffer between the queues of the topics and the library's channel, for channels that have no
// buffer. When a connection is lost, messages in the buffer still reach the library, and come again from the broker.
type modelStage struct {
	size  int // 0 for none
	wake  chan struct{}
	queue []*modelCopy // guarded by the world's mu
	gone  atomic.Int32 // how many copies have left the buffer
}

// begin sets the size of the buffer.
func (s *modelStage) begin(cfg *modelConfig, ch chan pulsar.ConsumerMessage) {
	if cap(ch) == 0 { // otherwise the channel has its own buffer
		s.size, s.wake = cfg.Buffer, make(chan struct{}, 1)
	}
}

// forward moves copies from the buffer into the channel.
func (m *modelConsumer) forward() {
	s := &m.stage
	for {
		m.w.mu.Lock()
		var to chan pulsar.ConsumerMessage
		var head *modelCopy
		var cm pulsar.ConsumerMessage
		if len(s.queue) > 0 {
			to, head = m.opts.MessageChannel, s.queue[0]
			cm = head.message()
		}
		m.w.mu.Unlock()
		select {
		case to <- cm:
			m.w.mu.Lock()
			head.received = time.Now()
			s.gone.Add(1)
			s.queue = s.queue[1:]
			m.w.mu.Unlock()
			for _, p := range m.parts {
				p.dispatch()
			}
		case <-s.wake:
		case <-m.stop:
			return
		}
	}
}

// stageAll moves as many copies as fit from a topic's queue into the buffer. The caller holds mu.
func (p *modelPart) stageAll() {
	s := &p.cons.stage
	for len(p.queue) > 0 && !p.seeking && len(s.queue) < s.size {
		head := p.queue[0]
		p.queue = p.queue[1:]
		s.queue = append(s.queue, head)
		p.recordTaken(head)
		p.flow(1)
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
