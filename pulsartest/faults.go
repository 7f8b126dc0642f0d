package pulsartest

// faults are what a test has asked to go wrong that no Hook can do. Server.mu guards them.
type faults struct {
	refuse    bool
	paused    map[topicName]bool
	pausedAll bool
}

// holds reports whether dispatch of a topic is paused.
func (f *faults) holds(n topicName) bool {
	return f.pausedAll || len(f.paused) > 0 && (f.paused[n] || f.paused[n.base()])
}

// DropConnections closes all connections, as a crashing broker does. When it returns the broker has forgotten the producers
// and consumers behind them. Clients reconnect, unless RefuseConnections keeps them out.
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

// RefuseConnections closes new connections at once, until it is called with false. Open connections stay open.
func (s *Server) RefuseConnections(refuse bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.refuse = refuse
}

// Unload closes the topic's producers and consumers and forgets redelivery counts, as when the real broker moves a topic. Clients
// reconnect by themselves. Acknowledged entries stay acknowledged. If only some messages of a batch were acknowledged, all of
// them come back, as with Pulsar 4.0.7.
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

// PauseDispatch stops sending messages of the topic to consumers until ResumeDispatch. The topic "" means all topics, including
// those created later.
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

// ResumeDispatch ends PauseDispatch of the same topic. The topic "" ends every PauseDispatch.
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
