package attempts

// Arrive returns what Find returns, for a message that has come from the broker and that its consumer does not know. If
// the message may be in another session's handler, Due is the time by which the Log will know whether that session
// lives or is lost.
func (l *Log) Arrive(k Key) (Record, bool) {
	watches := l.watches.Load()
	if !watches {
		return l.Find(k)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.find(k)
	p, w := l.state.placeOf(k), &l.sessions
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

// Again returns what Find returns, for a message that this session's consumer got before and is about to get again. Due
// is as for Arrive, but without the delay of a failure in this session: this session's consumer keeps that delay
// itself.
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
	if r.session == l.id {
		r.due = 0
	}
	if l.watches.Load() {
		l.delay(&r)
	}
	return r.public(k), true
}

// delay postpones the due time of r if its message may be in another session's handler. The caller holds mu.
func (l *Log) delay(r *record) {
	if r.count == 0 && r.due <= r.written+1 {
		// Begin records no delay: due is the time of writing. The due time of a snoozed message is later.
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
