package ui

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

// letterIndexes has an index of each dead letter topic whose pages were opened.
type letterIndexes struct {
	mu  sync.Mutex
	all map[string]*letterIndex
}

const (
	maxIndexes   = 20
	maxSummaries = 200_000 // for a topic; further letters are counted, not listed
	bars         = 36      // of a sparkline
)

// letterIndex is the state of one dead letter topic. It reads letters once, in the background, and keeps only a summary
// of each.
type letterIndex struct {
	topic        string
	subscription string // of replays and purges
	letters      *deadletter.Topic
	schemas      *admin.Schemas
	used         time.Time // guarded by letterIndexes.mu

	mu      sync.Mutex
	reading bool
	seen    int // letters that the current reading has read
	changes int // changes of the topic that have ended
	got     *snapshot
	err     error
	spent   bool // the last replay was a test whose letter died again, so it cannot be continued
}

// snapshot is the result of one reading. It does not change.
type snapshot struct {
	state   string // of the topic when the reading began, from its statistics and letterIndex.changes
	at      time.Time
	total   int
	by      deadletter.Grouping
	groups  []*letterGroup // the largest first
	byID    map[string]*letterGroup
	letters []summary // in the order of the topic
	more    int       // letters that are counted, but not listed
	from    time.Time // when the first letter died
	to      time.Time
}

// letterGroup is a group and the data of its sparkline.
type letterGroup struct {
	*deadletter.Group
	times [bars]int // letters that died in each part of the time
	most  int       // the largest of times
}

// summary is the part of a letter that is kept.
type summary struct {
	id, key, reason string
	died            time.Time
	group           *letterGroup
	size, replays   int
}

// index returns the index of a topic.
func (h *Handler) index(ctx context.Context, topic string) (*letterIndex, error) {
	h.dead.mu.Lock()
	x := h.dead.all[topic]
	if x != nil {
		x.used = time.Now()
	}
	h.dead.mu.Unlock()
	if x != nil {
		return x, nil
	}
	subscription, err := h.deadSubscription(ctx, topic)
	if err != nil {
		return nil, err
	}
	dead, err := deadletter.Open(h.o.Client,
		deadletter.Options{Topic: topic, Subscription: subscription, Admin: deadletter.Admin(h.api),
			Decryption: h.o.Decryption})
	if err != nil {
		return nil, err
	}
	x = &letterIndex{topic: topic, subscription: subscription, letters: dead,
		schemas: &admin.Schemas{API: h.api, Topic: topic}, used: time.Now()}
	h.dead.mu.Lock()
	defer h.dead.mu.Unlock()
	if other := h.dead.all[topic]; other != nil {
		return other, nil
	}
	if h.dead.all == nil {
		h.dead.all = map[string]*letterIndex{}
	}
	h.dead.all[topic] = x
	if len(h.dead.all) > maxIndexes {
		var oldest *letterIndex
		for _, other := range h.dead.all {
			if other != x && (oldest == nil || other.used.Before(oldest.used)) {
				oldest = other
			}
		}
		delete(h.dead.all, oldest.topic)
	}
	return x, nil
}

// look returns the last snapshot, if there is one. If the topic has changed since, look begins a reading, and waits a
// moment for the new snapshot.
func (h *Handler) look(ctx context.Context, x *letterIndex) view {
	state, err := h.deadState(ctx, x)
	x.mu.Lock()
	state += fmt.Sprint(" ", x.changes)
	if err != nil {
		if ctx.Err() == nil { // otherwise the browser has gone, and other pages must not show its error
			x.err = err
		}
	} else if !x.reading && (x.got == nil || x.got.state != state || x.err != nil) {
		x.reading, x.seen = true, 0
		if !h.start(func(ctx context.Context) { h.read(ctx, x, state) }) {
			x.reading = false
		}
	}
	x.mu.Unlock()
	for begin := time.Now(); time.Since(begin) < firstPatience; time.Sleep(5 * time.Millisecond) {
		x.mu.Lock()
		ready := !x.reading || x.got != nil && time.Since(begin) > againPatience
		x.mu.Unlock()
		if ready || ctx.Err() != nil {
			break
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	v := view{snapshot: x.got, Reading: x.reading, Seen: x.seen}
	if x.err != nil {
		v.Err = errorText(x.err)
	}
	return v
}

// How long a page waits for the first snapshot, and for a newer one.
const (
	firstPatience = 150 * time.Millisecond
	againPatience = 100 * time.Millisecond
)

// view is an index at one moment.
type view struct {
	*snapshot
	Reading bool
	Seen    int
	Err     string
}

// read reads all letters. Then it makes open pages call look again. If the topic has changed during the reading, look
// begins another reading.
func (h *Handler) read(ctx context.Context, x *letterIndex, state string) {
	got, err := h.readOnce(ctx, x, state)
	x.mu.Lock()
	x.reading, x.err = false, err
	if err == nil {
		x.got = got
	}
	x.mu.Unlock()
	h.changed()
}

func (h *Handler) readOnce(ctx context.Context, x *letterIndex, state string) (*snapshot, error) {
	s := &snapshot{state: state, at: time.Now(), byID: map[string]*letterGroup{}}
	reasons := map[string]string{} // so that letters with the same reason share its text
	for l, err := range x.letters.Peek(ctx, 0) {
		if errors.Is(err, deadletter.ErrNoTopic) {
			break
		}
		if err != nil {
			return nil, err
		}
		s.add(&l, reasons)
		if s.total%1000 == 0 {
			x.mu.Lock()
			x.seen = s.total
			x.mu.Unlock()
			h.changed()
		}
	}
	s.draw()
	return s, nil
}

func (s *snapshot) add(l *deadletter.Letter, reasons map[string]string) {
	of := s.by.Add(l)
	g := s.byID[of.ID]
	if g == nil {
		g = &letterGroup{Group: of}
		s.byID[of.ID] = g
	}
	s.total++
	if len(s.letters) >= maxSummaries {
		s.more++
		return
	}
	reason, ok := reasons[l.Reason]
	if !ok {
		reason = strings.Clone(l.Reason[:min(len(l.Reason), 200)])
		if len(reasons) < 1000 {
			reasons[strings.Clone(l.Reason)] = reason
		}
	}
	s.letters = append(s.letters, summary{id: l.ID, key: strings.Clone(l.Key[:min(len(l.Key), 100)]), reason: reason,
		died: l.Died, group: g,
		size: l.Size, replays: l.Replays})
}

// draw counts the letters of each group over time, for the sparklines.
func (s *snapshot) draw() {
	for _, of := range s.by.Groups() {
		g := s.byID[of.ID]
		s.groups = append(s.groups, g)
		if s.from.IsZero() || g.First.Before(s.from) {
			s.from = g.First
		}
		if g.Last.After(s.to) {
			s.to = g.Last
		}
	}
	whole := max(s.to.Sub(s.from), time.Second)
	for _, l := range s.letters {
		bar := min(int(float64(l.died.Sub(s.from))/float64(whole)*bars), bars-1)
		l.group.times[bar]++
		l.group.most = max(l.group.most, l.group.times[bar])
	}
}

// invalidate makes the next page read the letters again, also if a reading is under way.
func (x *letterIndex) invalidate() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.changes++
}
