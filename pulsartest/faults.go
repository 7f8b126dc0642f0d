package pulsartest

import "fmt"

// faults are failures that a test has asked for and that no hook can cause. Server.mu guards them.
type faults struct {
	refuse    bool
	paused    map[topicName]bool
	pausedAll bool
}

// isPaused reports whether dispatch of a topic is paused.
func (f *faults) isPaused(n topicName) bool {
	return f.pausedAll || len(f.paused) > 0 && (f.paused[n] || f.paused[n.base()])
}

// checkTopic panics if a topic's name is malformed: a fault of that topic would silently do nothing.
func checkTopic(call, topic string) {
	if _, err := parseTopic(topic); topic != "" && err != nil {
		panic(fmt.Sprintf("pulsartest: %s: %v", call, err))
	}
}

// pause pauses dispatch of a topic, or ends the pause.
func (f *faults) pause(topic string, pause bool) {
	n, _ := parseTopic(topic)
	switch {
	case topic == "":
		f.pausedAll = pause
		if !pause {
			clear(f.paused)
		}
	case !pause:
		delete(f.paused, n)
	case f.paused == nil:
		f.paused = map[topicName]bool{n: true}
	default:
		f.paused[n] = true
	}
}

// DropConnections closes all connections, as a crashing broker does. When it returns, the broker has forgotten their
// producers and consumers. Clients reconnect, unless RefuseConnections keeps them out.
func (s *Server) DropConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.sessions {
		c.gone = true // so that no message moves from one connection to another
	}
	for c := range s.sessions {
		c.detach()
		c.close()
	}
}

// RefuseConnections closes new connections at once, until it is called with false. Open connections stay open.
func (s *Server) RefuseConnections(refuse bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.refuse = refuse
}

// Unload closes the topic's producers and consumers and forgets redelivery counts, as when the real broker moves a
// topic. Clients reconnect by themselves. Acknowledged entries stay acknowledged. If only some messages of a batch were
// acknowledged, the whole batch comes back, as with Pulsar 4.0.7. A malformed name of a topic is a panic.
func (s *Server) Unload(topic string) {
	checkTopic("Unload", topic)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.matching(topic) {
		t.unload()
	}
}

// Terminate ends the topic, which then accepts no more messages and no producers. A malformed name of a topic is a
// panic.
func (s *Server) Terminate(topic string) {
	checkTopic("Terminate", topic)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.matching(topic) {
		t.terminate()
	}
}

// CloseConsumers closes the consumers of a subscription from the broker's side. Clients subscribe again by themselves.
// A malformed name of a topic is a panic.
func (s *Server) CloseConsumers(topic, subscription string) {
	checkTopic("CloseConsumers", topic)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.matching(topic) {
		if sub := t.subs[subscription]; sub != nil {
			sub.closeConsumers(nil)
		}
	}
}

// PauseDispatch stops sending messages of the topic to consumers until it is called with false. The topic "" means all
// topics, including topics created later; PauseDispatch("", false) ends every pause. A malformed name of a topic is a
// panic.
func (s *Server) PauseDispatch(topic string, pause bool) {
	checkTopic("PauseDispatch", topic)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.pause(topic, pause)
	if pause {
		return
	}
	for _, t := range s.matching(topic) {
		for _, sub := range t.subs {
			sub.dispatch()
		}
	}
}
