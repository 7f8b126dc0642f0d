package pulsartest

import (
	"slices"
	"time"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// ServerError is an error code of Pulsar's protocol. Clients react to some codes in their own way: after ServiceNotReady they
// connect again; after TopicNotFound, TopicTerminated and ProducerFenced most give up.
type ServerError int32

// Error codes that a failing broker may answer with.
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

// The short forms of a Hook are rules: verdicts on commands of one type, which may be counted. They come after the Hook, of what it lets
// pass. Server.mu guards them.
type rules []rule

type rule struct {
	command string    // its type; empty for all that the broker sends
	topic   topicName // with no namespace: every topic
	left    int       // negative: no end
	verdict Verdict
}

// setRule replaces the rule for a command and a topic. It is for n of them; for all when n is negative.
func (s *Server) setRule(command, topic string, n int, verdict Verdict) {
	r := rule{command: command, left: n, verdict: verdict}
	if topic != "" {
		r.topic, _ = parseTopic(topic)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = slices.DeleteFunc(s.rules, func(old rule) bool { return old.command == command && old.topic == r.topic })
	if n != 0 {
		s.rules = append(s.rules, r)
	}
	s.ruled.Store(len(s.rules) > 0)
}

// judge is the verdict of all rules that d meets.
func (rules rules) judge(d Command) Verdict {
	v := Pass
	name, _ := parseTopic(d.Topic)
	for i := range rules {
		r := &rules[i]
		switch {
		case r.left == 0:
			continue
		case r.command == "" && d.From != FromBroker || r.command != "" && r.command != d.Type:
			continue
		case r.topic.namespace != "" && r.topic != name && r.topic != name.base():
			continue
		}
		if r.left > 0 {
			r.left--
		}
		delay := v.delay + r.verdict.delay
		if v.action == pass {
			v = r.verdict
		}
		v.delay = delay
	}
	return v
}

// FailSends answers the next n messages sent to topic with an error. If n is negative it fails all messages; 0 ends this. The
// topic "" means all topics. pulsar-client-go sends again after most errors, on a new connection. To make its Send fail, use
// SwallowSends or the code TopicTerminated.
func (s *Server) FailSends(topic string, n int, code ServerError) {
	s.setRule("SEND", topic, n, injected(code))
}

// SwallowSends loses the next n messages sent to topic: the broker neither stores nor answers them, and the producer's Send fails
// after its SendTimeout. n and topic are as for FailSends. The call replaces an earlier FailSends.
func (s *Server) SwallowSends(topic string, n int) { s.setRule("SEND", topic, n, Drop) }

// FailProducers answers the next n producers of topic with an error. n and topic are as for FailSends.
func (s *Server) FailProducers(topic string, n int, code ServerError) {
	s.setRule("PRODUCER", topic, n, injected(code))
}

// FailSubscribes answers the next n consumers of topic with an error. n and topic are as for FailSends.
func (s *Server) FailSubscribes(topic string, n int, code ServerError) {
	s.setRule("SUBSCRIBE", topic, n, injected(code))
}

// DelayResponses delays everything that the broker sends by d, messages included, and keeps its order; 0 ends the delay.
func (s *Server) DelayResponses(d time.Duration) {
	n := -1
	if d <= 0 {
		n = 0
	}
	s.setRule("", "", n, Pass.After(d))
}

// DropAckResponses sends no response to the next n acknowledgements that ask for one (AckWithResponse), although they take
// effect. If n is negative it drops all responses; 0 ends this. The client's Ack fails after its OperationTimeout.
func (s *Server) DropAckResponses(n int) { s.setRule("ACK_RESPONSE", "", n, Drop) }

func injected(code ServerError) Verdict { return Fail(code, "pulsartest: injected failure") }
