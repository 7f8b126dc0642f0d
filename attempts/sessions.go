package attempts

import (
	"maps"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// watch is a Log's knowledge of its own session and the others.
type watch struct {
	begins  bool  // the next frame says that this session begins
	lease   int64 // of this session; 0 for none
	renewal int64 // when this session renews its lease

	followed int64 // the time since which the log is read as it is written, without a gap
	echoed   int64 // when a frame of this session was last read back; 0 if none was

	foundLost  map[SessionID]bool // sessions that were found lost and not heard since
	unreported []string           // names of lost sessions that are not logged yet
	live       map[SessionID]bool // sessions heard since followed, neither ended nor lost
	searchedAt int64              // when findLost last searched
	spent      int64              // the session is careful if this time is past; each message moves it forward

	newest  map[uint32]position // by topic, the newest entry that this consumer got
	orphans map[place]bool      // unknown messages that came after newer ones: another session had them before
}

const (
	minLease    = 6 * time.Second
	leaseOfEach = 60 * time.Millisecond // a lease has at least this much for each session, to limit renewals
	renewals    = 3                     // within one lease
	clockSlack  = time.Minute           // how much the clocks of machines may differ
	maxOrphans  = 10000

	// A message that has just crashed another session looks like any other. So a session is careful with its first
	// messages, and with the first messages after another session was lost, since that session may have had them. With
	// other messages it is careful as long as that costs little. A message costs credit, and credit grows with time.
	carefulEach  = 10 * time.Millisecond  // cost of a message
	carefulMore  = 100 * time.Microsecond // with n sessions a message costs n² times this, if that is more
	carefulWait  = 10                     // a Begin costs this many times the time it takes
	carefulFirst = 2 * time.Minute        // the largest credit, and the credit at the beginning
	carefulLast  = time.Second            // the largest debt from the number of messages
	carefulMost  = time.Minute            // the largest debt from waiting for a slow log, for all handlers together
	carefulLent  = carefulMost / 2        // the debt up to which messages of other sessions are still handled with care
	tooLate      = 5 * time.Second        // a lag after which the log counts as not answering
)

// KeepAlive makes this session write regularly that it is alive. A session is lost if the others do not hear from it
// for its lease: six seconds, or longer if there are many sessions. Then each message that was in one of its handlers,
// according to Begin or Begun, counts one crash. Package worker calls KeepAlive.
func (l *Log) KeepAlive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watches.Store(true)
	l.sessions.lease = minLease.Milliseconds()
	if l.sessions.echoed > 0 { // without a lease, old echoes do not mean that the log is cut off
		l.sessions.echoed = now()
	}
	l.sessions.newest, l.sessions.orphans = map[uint32]position{}, map[place]bool{}
	l.notify()
}

// addState adds the state of the session to a frame. next is when the state must be written again; 0 for never.
func (w *watch) addState(f *frame, name string) (next int64) {
	if w.begins {
		f.flags |= begins
		f.name = name
	}
	if w.lease == 0 {
		return 0
	}
	f.flags |= leases
	f.lease = w.lease
	return max(1, w.renewal)
}

// stateSent notes that a frame was sent: it may have the state of the session.
func (w *watch) stateSent(f *frame) {
	if f.has(begins) {
		w.begins = false
	}
	if f.has(leases) {
		w.renewal = now() + w.lease/renewals
	}
}

// readBack notes that a frame of this session was read back. If that took long, the log could not be reached, and the
// other sessions may not reach it yet.
func (w *watch) readBack(at int64) {
	if w.echoed == 0 || w.isCutOff(at) {
		w.followed = at
		clear(w.live)
	}
	w.echoed = at
}

// isCutOff reports whether this session has read back none of its frames for long. Then it may itself be the reason why
// others seem lost.
func (w *watch) isCutOff(at int64) bool { return w.lease > 0 && at-w.echoed > w.lease-w.lease/renewals }

// hears notes that a session has written a frame just now, and whether the session ends with it.
func (w *watch) hears(id SessionID, ends bool) {
	delete(w.foundLost, id)
	w.live[id] = true
	if ends {
		delete(w.live, id)
	}
}

// standing reports whether a session is lost, and whether it is doubtful that the session lives. A session that was not
// heard since watch.followed may live if its clock is wrong. The caller holds mu.
func (l *Log) standing(id SessionID, at int64) (lost, doubtful bool) {
	x, w := l.state.sessions[id], &l.sessions
	switch {
	case id == l.id:
		return false, false
	case x == nil || w.foundLost[id]: // a session that the log does not name counts as lost: see isGone
		return true, false
	case x.ended || x.lease == 0:
		return false, false
	case w.isCutOff(at):
		return false, true
	case w.live[id]:
		lost = x.isLost(at)
	default:
		lost = x.isGone(at) || at-w.followed > x.lease
	}
	return lost, !lost // a session that was heard may have crashed just now
}

// sweep forgets expired records and silent sessions. The caller holds mu.
func (l *Log) sweep(at int64) {
	l.state.sweep(at, l.o.Retention)
	for _, known := range []map[SessionID]bool{l.sessions.foundLost, l.sessions.live} {
		maps.DeleteFunc(known, func(id SessionID, _ bool) bool { return l.state.sessions[id] == nil })
	}
}

// findLost finds sessions that were lost since the log was opened, or shortly before, at most once in 100 ms. The
// caller holds mu.
func (l *Log) findLost(at int64) {
	w := &l.sessions
	if at-w.searchedAt < 100 {
		return
	}
	w.searchedAt = at
	for id, x := range l.state.sessions {
		if w.foundLost[id] || x.isGone(l.opened) {
			continue
		}
		if lost, _ := l.standing(id, at); lost {
			w.foundLost[id] = true
			delete(w.live, id)
			w.spent = 0
			l.stats.Lost++
			w.unreported = append(w.unreported, x.name)
		}
	}
}

// Crashes returns how many sessions a message has crashed: the lost sessions that had it in a handler. It is 0 for
// messages of a non-persistent topic, which all have the same ID.
func (l *Log) Crashes(k Key) uint32 {
	if l.known.Load() == 0 || !topicname.IsPersistent(k.Topic) {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r, _ := l.find(k)
	return l.crashes(r)
}

// crashes returns Crashes for a record. The caller holds mu.
func (l *Log) crashes(r record) uint32 {
	if r.begun != 0 && r.begun != l.id {
		if lost, _ := l.standing(r.begun, now()); lost {
			return r.crashes + 1
		}
	}
	return r.crashes
}

// IsCareful reports whether Begin has to return before the handler of a message is called. Otherwise Begun is needed
// only if the handler takes long. IsCareful returns true for messages that another session had before, and for about
// the first 2,000 messages after a session was lost or this one began. It also returns true for any message as long as
// the session waits for Begin in at most a tenth of the time. With more than ten sessions it returns true for fewer
// messages. While the log fails, or has not answered for five seconds, it returns false. Call it once for each message
// that is handled: it counts them.
func (l *Log) IsCareful(k Key) bool {
	l.mu.Lock()
	careful, lost := l.isCareful(k), l.sessions.unreported
	l.sessions.unreported = nil
	l.mu.Unlock()
	for _, name := range lost {
		l.o.Logger.Warn("attempts: a consumer crashed or cannot reach the log; for a while, messages are recorded "+
			"before they are handled", "topic", l.o.Topic, "name", name)
	}
	return careful
}

func (l *Log) isCareful(k Key) bool {
	w, at := &l.sessions, now()
	l.findLost(at)
	p := l.state.placeOf(k)
	orphan := w.orphans[p]
	delete(w.orphans, p)
	careful := w.spent <= at || orphan && w.spent <= at+carefulLent.Milliseconds()
	sessions := time.Duration(len(w.live))
	each := max(carefulEach, sessions*sessions*carefulMore)
	w.spent = max(w.spent, at-carefulFirst.Milliseconds())
	w.spend(each, at, carefulLast)
	return careful && l.failure == nil && l.own.lag(at) <= tooLate
}

// spend uses up credit. It never raises the debt above the parameter debt.
func (w *watch) spend(credit time.Duration, at int64, debt time.Duration) {
	w.spent = max(w.spent, min(w.spent+credit.Milliseconds(), at+debt.Milliseconds()))
}

// Sessions returns the sessions in the log, in no order.
func (l *Log) Sessions() []Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := now()
	var sessions []Session
	for id, x := range l.state.sessions {
		begun := x.begun
		if begun == 0 { // the frame that began the session is not in the log any more
			begun = x.heard
		}
		s := Session{id, x.name, moment(begun), moment(x.heard), time.Duration(x.lease) * time.Millisecond, Live}
		if lost, _ := l.standing(id, at); lost {
			s.State = Lost
		} else if x.ended {
			s.State = Ended
		}
		sessions = append(sessions, s)
	}
	return sessions
}
