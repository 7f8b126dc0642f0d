package pulsartest

import (
	"errors"
	"time"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// ServerError is an error code of Pulsar's protocol. Clients give some of them
// a meaning of their own: after ServiceNotReady they connect anew, after
// TopicNotFound, TopicTerminated and ProducerFenced most give up.
type ServerError int32

// The codes that make sense as the answer of a failing broker.
const (
	MetadataError         = ServerError(wire.MetadataError)
	PersistenceError      = ServerError(wire.PersistenceError)
	AuthorizationError    = ServerError(wire.AuthorizationError)
	ConsumerBusy          = ServerError(wire.ConsumerBusy)
	ServiceNotReady       = ServerError(wire.ServiceNotReady)
	ProducerQuotaExceeded = ServerError(wire.ProducerBlockedQuotaExceededException)
	TopicNotFound         = ServerError(wire.TopicNotFound)
	TooManyRequests       = ServerError(wire.TooManyRequests)
	TopicTerminated       = ServerError(wire.TopicTerminatedError)
	ProducerBusy          = ServerError(wire.ProducerBusy)
	IncompatibleSchema    = ServerError(wire.IncompatibleSchema)
	NotAllowed            = ServerError(wire.NotAllowedError)
	ProducerFenced        = ServerError(wire.ProducerFenced)
)

// faults are what a test has asked to go wrong. Server.mu guards them.
type faults struct {
	refuse        bool
	responseDelay time.Duration
	ackResponses  int // still to be dropped
	paused        map[topicName]bool
	pausedAll     bool
	sends         rules
	producers     rules
	subscribes    rules
}

// rules make requests fail, by topic.
type rules []rule

type rule struct {
	topic topicName // with no namespace: every topic
	left  int       // negative: no end
	err   error
}

var errSwallowed = errors.New("swallowed")

// set replaces the rule of a topic; n requests fail, all when it is negative.
func (r *rules) set(topic string, n int, err error) {
	var name topicName
	if topic != "" {
		name, _ = parseTopic(topic)
	}
	for i := range *r {
		if (*r)[i].topic == name {
			(*r)[i] = rule{name, n, err}
			return
		}
	}
	*r = append(*r, rule{name, n, err})
}

// hit returns the error that the next request on topic has to fail with.
func (r *rules) hit(topic string) error {
	if len(*r) == 0 {
		return nil
	}
	name, err := parseTopic(topic)
	if err != nil {
		return nil
	}
	for i := range *r {
		if x := &(*r)[i]; x.left != 0 && (x.topic.namespace == "" || x.topic == name || x.topic == name.base()) {
			if x.left > 0 {
				x.left--
			}
			return x.err
		}
	}
	return nil
}

// holds reports whether dispatch of a topic is paused.
func (f *faults) holds(n topicName) bool {
	return f.pausedAll || len(f.paused) > 0 && (f.paused[n] || f.paused[n.base()])
}

// DropConnections closes all connections, as a crashing broker does. When it
// returns the broker has forgotten the producers and consumers behind them.
// Clients connect anew, unless RefuseConnections keeps them out.
func (s *Server) DropConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.sessions {
		c.gone = true // so that nothing moves from one to another
	}
	for c := range s.sessions {
		c.detach()
		c.close()
	}
}

// RefuseConnections closes new connections at once, until it is called with
// false. Those that are open stay.
func (s *Server) RefuseConnections(refuse bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.refuse = refuse
}

// Unload closes the topic's producers and consumers and forgets redelivery
// counts, as when the real broker moves a topic. Clients come back by
// themselves. Entries that were acknowledged stay so; of a batch that was
// acknowledged in part all messages come back, as from Pulsar 4.0.7.
func (s *Server) Unload(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.matching(topic) {
		t.unload()
	}
}

// Terminate ends the topic: it takes no more messages and no producers.
func (s *Server) Terminate(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.matching(topic) {
		t.terminate()
	}
}

// CloseConsumers closes the consumers of a subscription from the broker's side.
// Clients subscribe again by themselves.
func (s *Server) CloseConsumers(topic, subscription string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.matching(topic) {
		if sub := t.subs[subscription]; sub != nil {
			sub.closeConsumers(nil)
		}
	}
}

// PauseDispatch sends no messages of the topic to consumers until
// ResumeDispatch. Without a topic ("") it stands for all, also for those to come.
func (s *Server) PauseDispatch(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if topic == "" {
		s.faults.pausedAll = true
	} else if n, err := parseTopic(topic); err == nil {
		if s.faults.paused == nil {
			s.faults.paused = map[topicName]bool{}
		}
		s.faults.paused[n] = true
	}
}

// ResumeDispatch ends PauseDispatch of the same topic; without a topic ("") it
// ends all of them.
func (s *Server) ResumeDispatch(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if topic == "" {
		s.faults.pausedAll = false
		clear(s.faults.paused)
	} else if n, err := parseTopic(topic); err == nil {
		delete(s.faults.paused, n)
	}
	for _, t := range s.matching(topic) {
		for _, sub := range t.subs {
			sub.dispatch()
		}
	}
}

// FailSends answers the next n messages sent to topic with an error; all when n
// is negative, none any more when it is 0. Without a topic ("") it stands for
// all. pulsar-client-go sends again after most errors, on a new connection; to
// make its Send fail use SwallowSends or the code TopicTerminated.
func (s *Server) FailSends(topic string, n int, code ServerError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.sends.set(topic, n, injected(code))
}

// SwallowSends loses the next n messages sent to topic: they are neither
// stored nor answered, and fail after the producer's SendTimeout. n and topic
// are as for FailSends, which it replaces.
func (s *Server) SwallowSends(topic string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.sends.set(topic, n, errSwallowed)
}

// FailProducers answers the next n producers of topic with an error. n and
// topic are as for FailSends.
func (s *Server) FailProducers(topic string, n int, code ServerError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.producers.set(topic, n, injected(code))
}

// FailSubscribes answers the next n consumers of topic with an error. n and
// topic are as for FailSends.
func (s *Server) FailSubscribes(topic string, n int, code ServerError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.subscribes.set(topic, n, injected(code))
}

func injected(code ServerError) error {
	return failf(wire.ServerError(code), "pulsartest: injected failure")
}

// DelayResponses has everything that the broker sends, messages too, arrive d
// later, in the same order; 0 ends it.
func (s *Server) DelayResponses(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.responseDelay = d
}

// DropAckResponses leaves the next n acknowledgements that ask for a response
// (AckWithResponse) without one, though they count; all when n is negative,
// none any more when it is 0. The client's Ack fails after its
// OperationTimeout.
func (s *Server) DropAckResponses(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.ackResponses = n
}
