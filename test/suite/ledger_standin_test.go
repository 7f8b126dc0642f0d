package suite

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
)

// standIn stands in for a prepared consumer of upstream – its dispatcher, the queue before that, the ticks of its nacks
// – and for its broker.
type standIn struct {
	pulsar.Consumer // of a kind that the tests do not call
	opts            pulsar.ConsumerOptions
	window          int    // how many messages the queue takes; 0 for any number
	onSeek, onAck   func() // what else a Seek does, and an acknowledgement; may be nil
	more            chan struct{}
	emptied         chan struct{}
	closed          chan struct{}
	closes          sync.Once
	dispatcher      sync.WaitGroup

	mu       sync.Mutex
	sent     []pulsar.ConsumerMessage // ever, in order
	acked    map[position]int         // how often each was acknowledged
	backlog  []pulsar.ConsumerMessage // what the broker has to send now
	queue    []pulsar.ConsumerMessage
	requests int
}

// position tells messages apart, as the broker does.
type position struct {
	topic string
	entry int64
	index int32
}

func positionOf(cm pulsar.ConsumerMessage) position {
	return position{cm.Topic(), cm.ID().EntryID(), cm.ID().BatchIdx()}
}

// newStandIn returns a Consumer and the standIn that it wraps.
func newStandIn(t testing.TB, opts pulsar.ConsumerOptions, options ...redelivery.Option) (*redelivery.Consumer, *standIn) {
	t.Helper()
	s := &standIn{acked: map[position]int{}, more: make(chan struct{}, 1), emptied: make(chan struct{}), closed: make(chan struct{})}
	c, err := redelivery.SubscribeWith(func(prepared pulsar.ConsumerOptions) (pulsar.Consumer, error) {
		s.opts = prepared
		s.dispatcher.Go(s.dispatch)
		return s, nil
	}, opts, append([]redelivery.Option{redelivery.WithLogger(logtest.Logger(t))}, options...)...)
	require.NoError(t, err)
	t.Cleanup(func() { returns(t, func() error { c.Close(); return nil }) })
	return c, s
}

func (s *standIn) dispatch() {
	for {
		s.mu.Lock()
		for len(s.backlog) > 0 && (s.window == 0 || len(s.queue) < s.window) {
			s.queue = append(s.queue, s.backlog[0])
			s.backlog = drop(s.backlog)
		}
		var out chan<- pulsar.ConsumerMessage
		var next pulsar.ConsumerMessage
		if len(s.queue) > 0 {
			out, next = s.opts.MessageChannel, s.queue[0]
		}
		s.mu.Unlock()
		select {
		case out <- next:
			s.mu.Lock()
			s.queue = drop(s.queue)
			s.mu.Unlock()
		case <-s.more:
		case s.emptied <- struct{}{}:
			s.mu.Lock()
			s.queue, s.backlog = nil, nil
			s.mu.Unlock()
			s.emptied <- struct{}{}
		case <-s.closed:
			return
		}
	}
}

// drop removes the first message, and lets go of it.
func drop(queue []pulsar.ConsumerMessage) []pulsar.ConsumerMessage {
	queue[0] = pulsar.ConsumerMessage{}
	return queue[1:]
}

// publish has the broker send new messages.
func (s *standIn) publish(msgs ...item) { s.publishBy(s, msgs...) }

func (s *standIn) publishBy(child pulsar.Consumer, msgs ...item) {
	s.mu.Lock()
	for _, msg := range msgs {
		cm := pulsar.ConsumerMessage{Consumer: child, Message: &msg}
		s.sent, s.backlog = append(s.sent, cm), append(s.backlog, cm)
		defer s.signal()
		defer s.opts.Interceptors.BeforeConsume(cm)
	}
	s.mu.Unlock()
}

func (s *standIn) signal() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// redeliver has the broker send again what passes the filter, under new ids, before what it has to send anyway.
func (s *standIn) redeliver(passes func(position) bool) {
	s.mu.Lock()
	var again []pulsar.ConsumerMessage
	for _, cm := range s.sent {
		if at := positionOf(cm); passes(at) {
			msg := *cm.Message.(*item)
			msg.id = newID(at.entry, at.index, msg.id.BatchSize())
			again = append(again, pulsar.ConsumerMessage{Consumer: cm.Consumer, Message: &msg})
		}
	}
	s.backlog = append(append([]pulsar.ConsumerMessage{}, again...), s.backlog...)
	s.mu.Unlock()
	for _, cm := range again { // received; sent to the queue later
		s.opts.Interceptors.BeforeConsume(cm)
	}
	s.signal()
}

// truncate forgets what was sent, as if all of it were acknowledged.
func (s *standIn) truncate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = nil
	clear(s.acked)
}

// unacked passes what was not acknowledged. The caller holds mu.
func (s *standIn) unacked(at position) bool { return s.acked[at] == 0 }

// empty has the dispatcher forget what the queue holds. What the MessageChannel holds stays.
func (s *standIn) empty() {
	<-s.emptied
	<-s.emptied
}

// reconnect loses the connection, and the queue with it, and says as much as upstream does. The broker sends again what
// passes the filter.
func (s *standIn) reconnect(passes func(position) bool) {
	if s.opts.BackOffPolicyFunc != nil {
		s.opts.BackOffPolicyFunc()
	}
	s.empty()
	s.redeliver(passes)
}

// reset has the operator move the cursor back to the beginning.
func (s *standIn) reset() {
	s.mu.Lock()
	clear(s.acked)
	s.mu.Unlock()
	s.reconnect(func(position) bool { return true })
}

func (s *standIn) Name() string                        { return "stand-in" }
func (s *standIn) Subscription() string                { return sub }
func (s *standIn) Chan() <-chan pulsar.ConsumerMessage { return s.opts.MessageChannel }

func (s *standIn) Close() {
	s.closes.Do(func() { close(s.closed) })
	s.dispatcher.Wait()
	s.opts.Interceptors.OnConsumerClose(s, nil)
}

func (s *standIn) Receive(ctx context.Context) (pulsar.Message, error) {
	select {
	case cm := <-s.opts.MessageChannel:
		return cm.Message, nil
	case <-s.closed:
		return nil, errFakeClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *standIn) Ack(msg pulsar.Message) error { return s.AckID(msg.ID()) }

func (s *standIn) AckID(id pulsar.MessageID) error {
	s.settle(func(at position) bool { return at.entry == id.EntryID() && at.index == id.BatchIdx() })
	if s.onAck != nil {
		s.onAck()
	}
	s.opts.Interceptors.OnAcknowledge(s, id)
	return nil
}

func (s *standIn) AckIDList(ids []pulsar.MessageID) error {
	for _, id := range ids {
		if err := s.AckID(id); err != nil {
			return err
		}
	}
	return nil
}

func (s *standIn) AckIDCumulative(id pulsar.MessageID) error {
	s.settle(func(at position) bool {
		return at.entry < id.EntryID() || at.entry == id.EntryID() && at.index <= id.BatchIdx()
	})
	s.opts.Interceptors.OnAcknowledge(s, id)
	return nil
}

func (s *standIn) settle(passes func(position) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cm := range s.sent {
		if at := positionOf(cm); passes(at) {
			s.acked[at]++
		}
	}
}

func (s *standIn) Nack(msg pulsar.Message) { s.NackID(msg.ID()) }

// NackID asks for a message with the next tick. On Exclusive and Failover the broker rewinds.
func (s *standIn) NackID(id pulsar.MessageID) {
	tick := s.opts.NackRedeliveryDelay / 3
	if s.opts.NackBackoffPolicy != nil {
		tick = s.opts.NackBackoffPolicy.Next(1) / 3
	}
	time.AfterFunc(tick, func() {
		s.mu.Lock()
		s.requests++
		s.mu.Unlock()
		s.opts.Interceptors.OnNegativeAcksSend(s, []pulsar.MessageID{id})
		rewinds := s.opts.Type == pulsar.Exclusive || s.opts.Type == pulsar.Failover
		s.redeliver(func(at position) bool { return s.unacked(at) && (rewinds || at.entry == id.EntryID()) })
	})
}

func (s *standIn) SeekByTime(time.Time) error {
	s.empty()
	for len(s.opts.MessageChannel) > 0 {
		<-s.opts.MessageChannel
	}
	if s.onSeek != nil {
		s.onSeek()
	}
	return nil
}
