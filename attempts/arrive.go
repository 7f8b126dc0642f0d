package attempts

// Arrive is Find for a message that has come from the broker and that its consumer does not know. If the message may be
// in another session's handler, it is due when that session is known to live or to be lost.
func (l *Log) Arrive(k Key) (Record, bool) {
	watches := l.watches.Load()
	if !watches {
		return l.Find(k)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.find(k)
	p, w := l.state.place(k), &l.sessions
	if at := (position{k.Ledger, k.Entry}); w.newest[p.topic].before(at) {
		w.newest[p.topic] = at
	} else if at.before(w.newest[p.topic]) && !ok {
		if len(w.orphans) >= maxOrphans {
			clear(w.orphans)
		}
		w.orphans[p] = true
	}
	if !ok {
		return Record{}, false
	}
	l.delay(&r)
	return r.public(k), true
}

// Again is Find for a message that was delivered here before, and is about to be again. It is due as Arrive says, but
// a delay of this session's own failure, which its consumer knows better, is over.
func (l *Log) Again(k Key) (Record, bool) {
	if l.known.Load() == 0 {
		return Record{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.find(k)
	if !ok {
		return Record{}, false
	}
	if r.clock == l.id || r.clock == 0 { // the latter is not read back yet
		r.due = 0
	}
	if l.watches.Load() {
		l.delay(&r)
	}
	return r.public(k), true
}

// delay delays a record of a message that may be in another session's handler. The caller holds mu.
func (l *Log) delay(r *record) {
	if r.count == 0 && r.due <= r.written+1 {
		// it has no delay, as one that was snoozed has; the moment is one of its writer's clock
		r.due = 0
	}
	if r.begun == 0 {
		return
	}
	if _, doubtful := l.standing(r.begun, now()); doubtful {
		x, since := l.state.sessions[r.begun], l.sessions.followed
		if l.sessions.live[r.begun] {
			since = x.heard
		}
		r.due = max(r.due, since+x.lease+1)
	}
}
