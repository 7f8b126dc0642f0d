package pulsartest

import "time"

// clock is the server's time. Server.mu guards it.
type clock struct {
	ahead  time.Duration // of the real time
	timers map[*timer]struct{}
}

// FastForward moves the server's clock forward by d, as if d had passed: delayed messages become due, delays of
// Failover end, and stored messages are older, for consumers that start with the messages of the last seconds. When
// FastForward returns, the messages that became due are on their way. The clocks of clients do not change: a
// redelivery.Consumer keeps a message from the retry topic until the message is due by the client's clock.
func (s *Server) FastForward(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.ahead += max(d, 0)
	for t := s.clock.due(s.now()); t != nil; t = s.clock.due(s.now()) {
		if t.stop(); !s.closed {
			t.f()
		}
	}
	for t := range s.clock.timers {
		if t.timer.Stop() { // false if t has fired: its function waits for the lock
			t.timer.Reset(t.at.Sub(s.now()))
		}
	}
	for _, t := range s.topics {
		for _, sub := range t.subs {
			sub.dispatch()
		}
	}
}

// now returns the server's time.
func (s *Server) now() time.Time { return time.Now().Add(s.clock.ahead) }

func (s *Server) millis() int64 { return s.now().UnixMilli() }

// due returns the first timer whose time has come, if any.
func (c *clock) due(now time.Time) (first *timer) {
	for t := range c.timers {
		if !t.at.After(now) && (first == nil || t.at.Before(first.at)) {
			first = t
		}
	}
	return first
}

// timer is a time.Timer by the server's clock. Server.Close waits until f has returned. Server.mu guards the timer.
type timer struct {
	server  *Server
	at      time.Time
	f       func()
	timer   *time.Timer
	stopped bool
}

// after runs f under the lock after d, unless the server is closed or the timer is stopped earlier.
func (s *Server) after(d time.Duration, f func()) *timer {
	t := &timer{server: s, at: s.now().Add(d), f: f}
	s.clock.timers[t] = struct{}{}
	s.tasks.Add(1)
	t.timer = time.AfterFunc(d, func() {
		defer s.tasks.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.clock.timers, t)
		if !s.closed && !t.stopped {
			t.stopped = true
			f()
		}
	})
	return t
}

// stop stops t. It does nothing if t is nil or has run.
func (t *timer) stop() {
	if t == nil || t.stopped {
		return
	}
	t.stopped = true
	delete(t.server.clock.timers, t)
	if t.timer.Stop() {
		t.server.tasks.Done()
	}
}
