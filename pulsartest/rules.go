package pulsartest

import (
	"fmt"
	"slices"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// Inject applies a verdict to the next n commands of one type for one topic, or to all such commands if n is negative.
// It replaces an earlier verdict on the same command and topic. With n 0 it only removes the earlier verdict. command
// is Pulsar's name, as in [Command]. The command "" means every command, in both directions. The topic "" means every
// topic, and also commands without a topic. Inject panics if Pulsar has no such command, or if the name of the topic is
// malformed.
//
//	s.Inject("SEND", "orders", 1, Drop)                                       // Send fails after its SendTimeout
//	s.Inject("SEND", "orders", 1, Fail("TopicTerminatedError", "no more"))    // Send fails at once
//	s.Inject("PRODUCER", "orders", -1, Fail("AuthorizationError", "not you")) // no client gets a producer
//	s.Inject("SUBSCRIBE", "", 2, Fail("ServiceNotReady", "not yet"))          // two consumers are refused
//	s.Inject("ACK_RESPONSE", "", 1, Drop)                                     // an ack takes effect, but times out
//	s.Inject("", "", -1, Pass.After(time.Second))                             // every command comes a second late
//
// These verdicts apply to commands that the hook lets pass. If several apply, the first one that is not Pass decides,
// and their delays add up. After most errors pulsar-client-go sends a message again, on a new connection.
func (s *Server) Inject(command, topic string, n int, v Verdict) {
	if command != "" && !wire.Known(command) {
		panic(fmt.Sprintf("pulsartest: Inject of command %q, want a command of Pulsar's protocol, such as SEND",
			command))
	}
	checkTopic("Inject", topic)
	r := rule{command: command, left: n, verdict: v}
	if topic != "" {
		r.topic, _ = parseTopic(topic)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = slices.DeleteFunc(s.rules, func(old rule) bool { return old.command == command && old.topic == r.topic })
	if n != 0 {
		s.rules = append(s.rules, r)
	}
	s.hasRules.Store(len(s.rules) > 0)
}

// rules are the rules that Inject has made. Server.mu guards them.
type rules []rule

type rule struct {
	command string    // type of the commands; "" for all types
	topic   topicName // without a namespace for all topics
	left    int       // how many more commands; negative for no limit
	verdict Verdict
}

// judge returns the verdict of all rules that match d.
func (rules rules) judge(d Command) Verdict {
	v := Pass
	name, _ := parseTopic(d.Topic)
	for i := range rules {
		r := &rules[i]
		switch {
		case r.left == 0:
			continue
		case r.command != "" && r.command != d.Type:
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
