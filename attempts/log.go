package attempts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/durations"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// Log is one consumer's view of the log of a subscription, and a session of that log. It is safe for concurrent use. If
// the topic cannot be reached, the Log goes on with the records that it has read, buffers its own, reports the failure,
// and tries again.
type Log struct {
	client  pulsar.Client
	o       Options
	id      SessionID
	known   atomic.Int64 // number of records and changes; while it is 0, lookups return at once
	watches atomic.Bool  // KeepAlive was called
	opened  int64
	readers int // readers made so far; used only by the goroutine that makes them

	life    context.Context
	end     context.CancelFunc
	closing chan struct{} // closed by Close: the writer writes the remaining changes and ends
	once    sync.Once
	ended   chan struct{} // closed when the goroutines have ended
	ready   chan struct{} // closed when the log was read to its end for the first time
	wake    chan struct{} // wakes the writer

	mu           sync.Mutex // guards the fields below
	state        *state
	own          changes
	sessions     watch
	tidying      tidying
	most         int    // the largest size of a map since fit last replaced the maps
	number       uint64 // of the last frame
	begun        uint64 // number of the frame that begins the session
	caughtUp     bool   // from now on frames are read as they are written
	failure      error  // of the last attempt to reach the topic; nil if it succeeded
	stats        Stats
	reportedSlow int64 // when a lag of the log was last reported
}

// Stats are the state of a Log, and its counters since Open.
type Stats struct {
	Records  int           // unsettled messages that failed, or that a handler has
	Suspects int           // of these, messages that crashed a session and have come to another one since
	Lag      time.Duration // age of the oldest change that the Log has not read back from the topic
	Lost     uint64        // sessions found lost
	Failures uint64        // failures to read, write or reach the topic
}

// Open begins to read the log of a subscription and returns at once. Ready waits until the log was read to its end.
// Call Close when the Log is not needed any more. An error says which option is wrong.
func Open(client pulsar.Client, o Options) (*Log, error) {
	switch {
	case client == nil:
		return nil, errors.New("attempts: client is nil, want a pulsar.Client")
	case o.Topic == "":
		return nil, errors.New("attempts: Topic is empty, want the topic of the log")
	case !topicname.IsPersistent(o.Topic):
		return nil, fmt.Errorf("attempts: Topic is %q, want a persistent one", o.Topic)
	case durations.Wanted(o.Retention, true) != "":
		return nil, fmt.Errorf("attempts: Retention is %v, want %s", o.Retention, durations.Wanted(o.Retention, true))
	}
	o.Retention = cmp.Or(o.Retention, defaultRetention)
	if o.Name == "" {
		host, _ := os.Hostname()
		o.Name = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	l := newLog(client, o, SessionID(rand.Uint64()|1))
	go l.run()
	return l, nil
}

// newLog returns a Log that neither reads nor writes.
func newLog(client pulsar.Client, o Options, id SessionID) *Log {
	l := &Log{client: client, o: o, id: id, opened: now(), state: newState(),
		closing: make(chan struct{}),
		ended:   make(chan struct{}), ready: make(chan struct{}), wake: make(chan struct{}, 1)}
	l.own.byPlace = map[place]*ownChange{}
	l.sessions.foundLost, l.sessions.live, l.sessions.followed = map[SessionID]bool{}, map[SessionID]bool{}, l.opened
	l.life, l.end = context.WithCancel(context.Background())
	return l
}

// Ready waits until the log was read to its end. If ctx ends first, the error says why the log was not read yet. With
// ReadOnly, and if a session may be lost, Ready waits longer, but not beyond ctx.
func (l *Log) Ready(ctx context.Context) error {
	select {
	case <-l.ready:
		l.judge(ctx)
		return nil
	default:
	}
	select {
	case <-l.ready:
		l.judge(ctx)
		return nil
	case <-l.closing:
		return ErrClosed
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		err := cmp.Or(l.failure, ctx.Err())
		return fmt.Errorf("attempts: reading %s to its end: %w", l.o.Topic, err)
	}
}

// judge waits, if the Log is read only, until the Log knows whether each session lives. A session that seems silent may
// only have a wrong clock: then it is heard within its lease. A session that is not heard by then is lost.
func (l *Log) judge(ctx context.Context) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for l.o.ReadOnly && l.isDoubtful() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-l.closing:
			return
		}
	}
}

// isDoubtful reports whether a session seems to be silent but may live.
func (l *Log) isDoubtful() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := now()
	for id, x := range l.state.sessions {
		if _, doubtful := l.standing(id, at); doubtful && x.isLost(at) && !l.sessions.live[id] {
			return true
		}
	}
	return false
}

// closeTime is how long Close waits for the last changes to be written, and then for pulsar-client-go to close.
const closeTime = time.Second

// Close writes the remaining changes and the end of the session, for at most a second, and closes the Log. A second
// call does nothing.
func (l *Log) Close() {
	l.once.Do(func() {
		close(l.closing)
		if l.o.ReadOnly { // there is nothing to write
			l.end()
		}
		select {
		case <-l.ended:
		case <-time.After(closeTime):
			l.end()
			select {
			case <-l.ended:
			case <-time.After(closeTime): // the Close methods of pulsar-client-go take no context
			}
		}
		l.end()
	})
	<-l.life.Done()
}

// Session returns the id of this session.
func (l *Log) Session() SessionID { return l.id }

// Find returns the log's record of a message, if there is one.
func (l *Log) Find(k Key) (Record, bool) {
	if l.known.Load() == 0 {
		return Record{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.find(k)
	if !ok {
		return Record{}, false
	}
	return r.public(k), true
}

// find returns the record of a message, with changes that are not written yet. The caller holds mu.
func (l *Log) find(k Key) (record, bool) {
	r, ok := l.state.find(k)
	if n, has := l.state.numbers[k.Topic]; has {
		if c := l.own.byPlace[k.placeIn(n)]; c != nil {
			switch {
			case c.removed:
				return record{}, false
			case ok && !c.forgets:
				own := c.record
				if r.session == l.id { // r is an earlier change of this session, read back after own was made
					own.at = r.at // with equal positions, join prefers its first argument
				}
				return join(own, r), true
			}
			return c.record, true
		}
	}
	return r, ok
}

func (r record) public(k Key) Record {
	return Record{k, r.count, r.crashes, moment(r.due), moment(r.written), r.cause, r.session, r.begun}
}

// Records returns all records of the log, in no order. Their field Crashes has the result of Log.Crashes.
func (l *Log) Records() []Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	records := make([]Record, 0, len(l.state.records))
	add := func(p place) {
		k := l.state.key(p)
		if r, ok := l.find(k); ok {
			r.crashes = l.crashes(r)
			records = append(records, r.public(k))
		}
	}
	for p := range l.state.records {
		add(p)
	}
	for p := range l.own.byPlace {
		if _, ok := l.state.records[p]; !ok {
			add(p)
		}
	}
	return records
}

// Stats returns the state of the Log.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Records = len(l.state.records)
	for p, c := range l.own.byPlace {
		if _, ok := l.state.records[p]; c.removed && ok {
			s.Records--
		} else if !c.removed && !ok {
			s.Records++
		}
	}
	for _, r := range l.state.records {
		if r.crashes > 0 {
			s.Suspects++
		}
	}
	s.Lag = l.own.lag(now())
	return s
}

// updateSize updates known and most. The caller holds mu.
func (l *Log) updateSize() {
	l.known.Store(int64(len(l.state.records) + len(l.own.byPlace)))
	l.most = max(l.most, l.largest())
}

func (l *Log) largest() int {
	return max(len(l.state.records), len(l.state.removed), len(l.own.byPlace))
}

// fit replaces the maps by copies if these are far smaller than the maps once were: Go's maps never shrink. The caller
// holds mu.
func (l *Log) fit() {
	if n := l.largest(); n < l.most/4 {
		l.state.records, l.state.removed = fitted(l.state.records), fitted(l.state.removed)
		l.own.byPlace = fitted(l.own.byPlace)
		l.most = n
	}
}

// fitted returns a copy that takes only the memory that it needs, unlike maps.Clone.
func fitted[V any](m map[place]V) map[place]V {
	fresh := make(map[place]V, len(m))
	maps.Copy(fresh, m)
	return fresh
}

// notify wakes the writer.
func (l *Log) notify() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
