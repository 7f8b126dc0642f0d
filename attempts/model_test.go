package attempts

import (
	"flag"
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// modelLog is a topic, with sessions that have read parts of it.
type modelLog struct {
	frames   []readFrame
	sessions []*modelSession
	number   uint64
	now      int64
	truth    map[Key]modelTruth
}

// modelTruth has the facts about a message that follow from all frames of the topic.
type modelTruth struct {
	count   uint32
	crashes uint32
	due     int64
}

type modelSession struct {
	id    SessionID
	state *state
	read  int // how many frames it has read
	t     tidying
}

func (m *modelLog) publish(s *modelSession, f frame) position {
	m.number++
	f.session, f.number = s.id, m.number
	if f.checkpoint.before(s.state.checkpoint) {
		f.checkpoint = s.state.checkpoint
	}
	b := f.encode()
	decoded, err := decode(b)
	if err != nil {
		panic(err)
	}
	at := position{1, int64(len(m.frames)) + 1}
	m.frames = append(m.frames, readFrame{frame: decoded, at: at, time: m.now, now: m.now + rounding})
	return at
}

// catchUp makes a session read up to n frames.
func (m *modelLog) catchUp(s *modelSession, n int) {
	for ; n > 0 && s.read < len(m.frames); n-- {
		s.state.apply(m.frames[s.read])
		s.read++
	}
}

// begin starts a session that reads from the checkpoint of the last frame.
func (m *modelLog) begin() *modelSession {
	s := &modelSession{id: SessionID(m.number + 1000), state: newState()}
	if n := len(m.frames); n > 0 {
		s.read = int(m.frames[n-1].checkpoint.entry)
	}
	m.publish(s, frame{flags: begins})
	return s
}

// tidy does a session's next step of tidying.
func (m *modelLog) tidy(s *modelSession) {
	if s.t.mark == (position{}) {
		s.t.mark = m.publish(s, frame{})
		return
	}
	f := frame{}
	if !s.t.snapshot(s.state, &f, m.now, defaultRetention) {
		return
	}
	done := f.checkpoint == s.t.mark
	m.publish(s, f)
	if done {
		s.t = tidying{}
	}
}

// The log's last frame names a checkpoint. A session that reads from there learns the same as one that reads the whole
// log, whichever sessions crash or tidy at the same time.
func TestReadingFromTheCheckpointShowsTheWholeLog(t *testing.T) {
	for name, value := range map[string]string{"rapid.checks": "1000", "rapid.steps": "60"} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			_ = f.Value.Set(value)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		m := &modelLog{truth: map[Key]modelTruth{}}
		m.sessions = append(m.sessions, m.begin())
		pick := func(t *rapid.T) *modelSession {
			return m.sessions[rapid.IntRange(0, len(m.sessions)-1).Draw(t, "session")]
		}
		key := func(t *rapid.T) Key { return Key{"t", 5, rapid.Int64Range(0, 3).Draw(t, "entry"), 0} }
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				if len(m.sessions) < 4 {
					m.sessions = append(m.sessions, m.begin())
				}
			},
			"crash": func(t *rapid.T) {
				i := rapid.IntRange(0, len(m.sessions)-1).Draw(t, "crashes")
				m.sessions[i] = m.begin()
			},
			"read": func(t *rapid.T) { m.catchUp(pick(t), rapid.IntRange(1, 5).Draw(t, "n")) },
			"time": func(*rapid.T) { m.now++ },
			"put": func(t *rapid.T) {
				c := change{Key: key(t), count: rapid.Uint32Range(0, 5).Draw(t, "count"),
					crashes: rapid.Uint32Range(0, 2).Draw(t, "crashes"),
					delay:   rapid.Int64Range(0, 10).Draw(t, "delay")}
				changes := []change{c}
				if rapid.Bool().Draw(t, "forgets") {
					changes = []change{{Key: c.Key, removed: true}, c}
					delete(m.truth, c.Key)
				}
				m.publish(pick(t), frame{changes: changes})
				x, ok := m.truth[c.Key]
				switch due := m.now + c.delay; {
				case !ok || c.count > x.count:
					x.count, x.due = c.count, due
				case c.count == x.count:
					x.due = max(x.due, due)
				}
				x.crashes = max(x.crashes, c.crashes)
				m.truth[c.Key] = x
			},
			"remove": func(t *rapid.T) {
				k := key(t)
				m.publish(pick(t), frame{changes: []change{{Key: k, removed: true}}})
				delete(m.truth, k)
			},
			"reset": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") == 0 {
					m.publish(pick(t), frame{flags: resets})
					clear(m.truth)
				}
			},
			"tidy": func(t *rapid.T) { m.tidy(pick(t)) },
			"": func(t *rapid.T) {
				all := &modelSession{state: newState()}
				last := &modelSession{state: newState()}
				if n := len(m.frames); n > 0 {
					last.read = int(m.frames[n-1].checkpoint.entry)
				}
				for name, s := range map[string]*modelSession{"all": all, "from the checkpoint": last} {
					m.catchUp(s, len(m.frames))
					known := map[Key]modelTruth{}
					for p, r := range s.state.records {
						known[s.state.key(p)] = modelTruth{r.count, r.crashes, r.due}
					}
					require.Equal(t, m.truth, known, name)
				}
				for _, s := range m.sessions {
					other := *s
					if s.read < len(m.frames) {
						continue
					}
					known := map[Key]modelTruth{}
					for p, r := range other.state.records {
						known[other.state.key(p)] = modelTruth{r.count, r.crashes, r.due}
					}
					require.True(t, maps.Equal(m.truth, known),
						fmt.Sprint("a session knows ", known, ", want ", m.truth))
				}
			},
		})
	})
}
