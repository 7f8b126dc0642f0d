package attempts

import (
	"context"
	"time"
)

// watch is what a Log knows of sessions, and says of its own.
type watch struct {
	begins  bool  // it is to be said that this one begins
	lease   int64 // of this one; 0 for none
	renewal int64 // when it is to be renewed

	mourned map[SessionID]bool // sessions that were found lost
	careful int                // with how many messages to be careful still
	buries  []SessionID        // whose end has been dealt with, which is not said yet
	live    map[SessionID]bool // heard since the log was read to its end
	looked  int64              // when they were looked at the last time
	doubted bool               // one of them was in doubt then
	unsaid  []string           // names of those that were found lost, which is not logged yet

	newest  map[uint32]position // of each topic, the newest entry that came here
	orphans map[place]bool      // unknown messages that came after newer ones: another session had them
}

const (
	minLease    = 6 * time.Second
	leaseOfEach = 60 * time.Millisecond // more for each session, or a thousand of them would have nothing else to read
	renewals    = 3                     // of a lease
	clockSlack  = time.Minute           // that clocks of machines may differ by
	carefulFor  = 2000                  // messages: what a session may have had when it was lost comes first, after what was acknowledged
	maxOrphans  = 10000
)

// KeepAlive makes this session write regularly that it is alive. If the others do not hear from it for its lease (six seconds, or longer
// if there are many sessions), it is lost, and each message that was in a handler by Begin or Begun counts one crash. Package worker
// calls it.
func (l *Log) KeepAlive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watches.Store(true)
	l.sessions.lease = minLease.Milliseconds()
	l.sessions.newest, l.sessions.orphans = map[uint32]position{}, map[place]bool{}
	l.notify()
}

// adds adds to a frame what is to be said of the session, and returns when the next time is; 0 for not.
func (w *watch) adds(f *frame, name string) (next int64) {
	if w.begins {
		f.flags |= begins
		f.name = name
	}
	if len(w.buries) > 0 {
		f.flags |= buries
		f.buried = w.buries
	}
	if w.lease == 0 {
		return 0
	}
	f.flags |= leases
	f.lease = w.lease
	return max(1, w.renewal)
}

// says notes that a frame is sent.
func (w *watch) says(f *frame) {
	if f.has(begins) {
		w.begins = false
	}
	if f.has(buries) {
		w.buries = w.buries[len(f.buried):]
	}
	if f.has(leases) {
		w.renewal = now() + w.lease/renewals
	}
}

// hears notes that a session wrote just now.
func (w *watch) hears(id SessionID) {
	if w.live == nil {
		w.live = map[SessionID]bool{}
	}
	w.live[id] = true
}

// standing says what is known of a session: whether it is lost, or may be. One that was not heard since the log was opened may live, if
// its clock is another. The caller holds mu.
func (l *Log) standing(id SessionID, at int64) (lost, doubtful bool) {
	x := l.state.sessions[id]
	switch {
	case id == l.id:
		return false, false
	case x == nil: // it is not copied any more, so that it is long gone
		return true, false
	case x.ended || x.lease == 0:
		return false, false
	case x.buried:
		return true, false
	case !x.isLost(at):
		return false, true // until it was heard once more
	case l.sessions.live[id] || at-x.heard > x.lease+clockSlack.Milliseconds() || at-l.opened > x.lease:
		return true, false
	}
	return false, true
}

// look looks for sessions that are lost, and reports whether one is in doubt. The caller holds mu.
func (l *Log) look(at int64) (doubtful bool) {
	w := &l.sessions
	if at-w.looked < 100 {
		return w.doubted
	}
	w.looked, w.doubted = at, false
	for id, x := range l.state.sessions {
		if x.buried || x.ended || x.lease == 0 {
			continue
		}
		switch lost, doubt := l.standing(id, at); {
		case lost && !w.mourned[id]:
			w.mourned[id] = true
			w.careful = carefulFor
			l.stats.Lost++
			w.unsaid = append(w.unsaid, x.name)
		case doubt && !w.live[id]:
			w.doubted = true
		}
	}
	return w.doubted
}

// Arrive is Find for a message that has come from the broker and that its consumer does not know. If the message may be in another
// session's handler, it is due when that session is known to live or to be lost.
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
	if r.begun != 0 {
		at := now()
		if _, doubtful := l.standing(r.begun, at); doubtful {
			x := l.state.sessions[r.begun]
			r.due = max(r.due, max(x.heard, l.opened)+x.lease+1)
		}
	}
	return r.public(k), true
}

// Crashes returns how many sessions a message has crashed: lost sessions that had it in a handler.
func (l *Log) Crashes(k Key) uint32 {
	if l.known.Load() == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r, _ := l.find(k)
	return l.crashes(r)
}

// crashes is Crashes of a record. The caller holds mu.
func (l *Log) crashes(r record) uint32 {
	if r.begun != 0 && r.begun != l.id {
		if lost, _ := l.standing(r.begun, now()); lost {
			return r.crashes + 1
		}
	}
	return r.crashes
}

// IsCareful reports whether Begin has to return before the handler of a message is called: after a session was lost, and for messages of
// a lost session. Otherwise Begun is needed only if the handler takes long. Call it once for each message that is handled: it counts
// them.
func (l *Log) IsCareful(k Key) bool {
	l.mu.Lock()
	careful, lost := l.isCareful(k), l.sessions.unsaid
	l.sessions.unsaid = nil
	l.mu.Unlock()
	for _, name := range lost {
		l.o.Logger.Warn("attempts: a consumer crashed or cannot reach the log; for a while each message is recorded before its handler runs", "topic", l.o.Topic, "name", name)
	}
	return careful
}

func (l *Log) isCareful(k Key) bool {
	w := &l.sessions
	if p := l.state.place(k); w.orphans[p] {
		delete(w.orphans, p)
		return true
	}
	doubtful := l.look(now())
	if w.careful > 0 {
		if w.careful--; w.careful == 0 {
			for id := range w.mourned {
				if x := l.state.sessions[id]; x != nil && !x.buried {
					w.buries = append(w.buries, id)
				}
			}
			l.notify()
		}
		return true
	}
	return doubtful
}

// Begun records that a message is in a handler of this session.
func (l *Log) Begun(k Key) { l.begin(k, false) }

// Begin is Begun, and returns when the record is written.
func (l *Log) Begin(ctx context.Context, k Key) error { return l.written(ctx, l.begin(k, true)) }

func (l *Log) begin(k Key, waits bool) (done <-chan struct{}) {
	return l.change(k, waits, func(r *record) {
		r.crashes = l.crashes(*r)
		r.begun = l.id
	})
}

// Sessions returns the sessions in the log, in no order.
func (l *Log) Sessions() []Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := now()
	var sessions []Session
	for id, x := range l.state.sessions {
		begun := x.begun
		if begun == 0 { // that is not in the log any more
			begun = x.heard
		}
		s := Session{id, x.name, time.UnixMilli(begun), time.UnixMilli(x.heard), time.Duration(x.lease) * time.Millisecond, Live}
		if lost, _ := l.standing(id, at); lost {
			s.State = Lost
		} else if x.ended {
			s.State = Ended
		}
		sessions = append(sessions, s)
	}
	return sessions
}
