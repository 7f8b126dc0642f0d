package testkit

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

// StandIn takes the place of upstream's consumer (with its queue, its dispatcher, and the tick of its nacks) and of the
// broker.
type StandIn struct {
	pulsar.Consumer                        // nil: the tests call no method that StandIn lacks
	Opts            pulsar.ConsumerOptions // options with which it was subscribed
	Window          int                    // how many messages fit the queue; 0 for any number
	OnSeek          func()                 // a hook of Seek; may be nil
	more            chan struct{}
	emptied         chan struct{}
	closed          chan struct{}
	closes          sync.Once
	dispatcher      sync.WaitGroup

	mu       sync.Mutex
	sent     []pulsar.ConsumerMessage // all messages so far, in order
	acked    map[Position]int         // how often each message was acknowledged
	backlog  []pulsar.ConsumerMessage // messages that the broker will send next
	queue    []pulsar.ConsumerMessage
	Requests int // how often the Consumer requested messages
}

// Position identifies a message, as the broker does.
type Position struct {
	topic string
	entry int64
	index int32
}

func positionOf(cm pulsar.ConsumerMessage) Position {
	return Position{cm.Topic(), cm.ID().EntryID(), cm.ID().BatchIdx()}
}

// NewStandIn returns a Consumer and the StandIn that it drives.
func NewStandIn(
	t testing.TB, opts pulsar.ConsumerOptions, options ...redelivery.Option,
) (*redelivery.Consumer, *StandIn) {
	t.Helper()
	s := &StandIn{
		acked: map[Position]int{},
		more:  make(chan struct{}, 1), emptied: make(chan struct{}), closed: make(chan struct{}),
	}
	c, err := redelivery.SubscribeWith(func(prepared pulsar.ConsumerOptions) (pulsar.Consumer, error) {
		s.Opts = prepared
		s.dispatcher.Go(s.dispatch)
		return s, nil
	}, opts, append([]redelivery.Option{redelivery.WithLogger(logtest.Logger(t))}, options...)...)
	require.NoError(t, err)
	t.Cleanup(func() { Returns(t, func() error { c.Close(); return nil }) })
	return c, s
}

func (s *StandIn) dispatch() {
	for {
		s.mu.Lock()
		for len(s.backlog) > 0 && (s.Window == 0 || len(s.queue) < s.Window) {
			s.queue = append(s.queue, s.backlog[0])
			s.backlog = drop(s.backlog)
		}
		var out chan<- pulsar.ConsumerMessage
		var next pulsar.ConsumerMessage
		if len(s.queue) > 0 {
			out, next = s.Opts.MessageChannel, s.queue[0]
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

// drop removes the first message, and clears its place in the array, so that the message can be freed.
func drop(queue []pulsar.ConsumerMessage) []pulsar.ConsumerMessage {
	queue[0] = pulsar.ConsumerMessage{}
	return queue[1:]
}

// Publish makes the broker send new messages.
func (s *StandIn) Publish(msgs ...Item) { s.PublishBy(s, msgs...) }

// PublishBy makes the broker send new messages through child, one of several inner consumers.
func (s *StandIn) PublishBy(child pulsar.Consumer, msgs ...Item) {
	s.mu.Lock()
	for _, msg := range msgs {
		cm := pulsar.ConsumerMessage{Consumer: child, Message: &msg}
		s.sent, s.backlog = append(s.sent, cm), append(s.backlog, cm)
		defer s.signal()
		defer s.Opts.Interceptors.BeforeConsume(cm)
	}
	s.mu.Unlock()
}

func (s *StandIn) signal() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// Redeliver makes the broker send again, under new ids, all sent messages that pass the filter. It sends them before
// the backlog.
func (s *StandIn) Redeliver(passes func(Position) bool) {
	s.mu.Lock()
	var again []pulsar.ConsumerMessage
	for _, cm := range s.sent {
		if at := positionOf(cm); passes(at) {
			msg := *cm.Message.(*Item)
			msg.id = newID(at.entry, at.index, msg.id.BatchSize())
			again = append(again, pulsar.ConsumerMessage{Consumer: cm.Consumer, Message: &msg})
		}
	}
	s.backlog = append(append([]pulsar.ConsumerMessage{}, again...), s.backlog...)
	s.mu.Unlock()
	for _, cm := range again { // upstream calls BeforeConsume before it queues a message
		s.Opts.Interceptors.BeforeConsume(cm)
	}
	s.signal()
}

// Truncate forgets all sent messages, as if all were acknowledged.
func (s *StandIn) Truncate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = nil
	clear(s.acked)
}

// unacked is a filter that passes messages that were not acknowledged. The caller holds mu.
func (s *StandIn) unacked(at Position) bool { return s.acked[at] == 0 }

// empty makes the dispatcher drop the queue and the backlog, but not the messages in the MessageChannel.
func (s *StandIn) empty() {
	<-s.emptied
	<-s.emptied
}

// reconnect drops the connection and the queue, and calls the same hook as upstream. The broker then sends the messages
// that pass the filter again.
func (s *StandIn) reconnect(passes func(Position) bool) {
	if s.Opts.BackOffPolicyFunc != nil {
		s.Opts.BackOffPolicyFunc()
	}
	s.empty()
	s.Redeliver(passes)
}

// Reset moves the cursor back to the beginning, as an operator does.
func (s *StandIn) Reset() {
	s.mu.Lock()
	clear(s.acked)
	s.mu.Unlock()
	s.reconnect(func(Position) bool { return true })
}

func (s *StandIn) Name() string                        { return "stand-in" }
func (s *StandIn) Subscription() string                { return Subscription }
func (s *StandIn) Chan() <-chan pulsar.ConsumerMessage { return s.Opts.MessageChannel }

func (s *StandIn) Close() {
	s.closes.Do(func() { close(s.closed) })
	s.dispatcher.Wait()
	s.Opts.Interceptors.OnConsumerClose(s, nil)
}

func (s *StandIn) Receive(ctx context.Context) (pulsar.Message, error) {
	select {
	case cm := <-s.Opts.MessageChannel:
		return cm.Message, nil
	case <-s.closed:
		return nil, ErrFakeClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *StandIn) Ack(msg pulsar.Message) error { return s.AckID(msg.ID()) }

func (s *StandIn) AckID(id pulsar.MessageID) error {
	s.settle(func(at Position) bool { return at.entry == id.EntryID() && at.index == id.BatchIdx() })
	s.Opts.Interceptors.OnAcknowledge(s, id)
	return nil
}

func (s *StandIn) AckIDList(ids []pulsar.MessageID) error {
	for _, id := range ids {
		if err := s.AckID(id); err != nil {
			return err
		}
	}
	return nil
}

func (s *StandIn) AckIDCumulative(id pulsar.MessageID) error {
	s.settle(func(at Position) bool {
		return at.entry < id.EntryID() || at.entry == id.EntryID() && at.index <= id.BatchIdx()
	})
	s.Opts.Interceptors.OnAcknowledge(s, id)
	return nil
}

func (s *StandIn) settle(passes func(Position) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cm := range s.sent {
		if at := positionOf(cm); passes(at) {
			s.acked[at]++
		}
	}
}

func (s *StandIn) Nack(msg pulsar.Message) { s.NackID(msg.ID()) }

// NackID requests a message at the next tick. On Exclusive and Failover the broker rewinds.
func (s *StandIn) NackID(id pulsar.MessageID) {
	tick := s.Opts.NackRedeliveryDelay / 3
	if s.Opts.NackBackoffPolicy != nil {
		tick = s.Opts.NackBackoffPolicy.Next(1) / 3
	}
	time.AfterFunc(tick, func() {
		s.mu.Lock()
		s.Requests++
		s.mu.Unlock()
		s.Opts.Interceptors.OnNegativeAcksSend(s, []pulsar.MessageID{id})
		rewinds := s.Opts.Type == pulsar.Exclusive || s.Opts.Type == pulsar.Failover
		s.Redeliver(func(at Position) bool { return s.unacked(at) && (rewinds || at.entry == id.EntryID()) })
	})
}

func (s *StandIn) SeekByTime(time.Time) error {
	s.empty()
	for len(s.Opts.MessageChannel) > 0 {
		<-s.Opts.MessageChannel
	}
	if s.OnSeek != nil {
		s.OnSeek()
	}
	return nil
}
