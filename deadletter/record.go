package deadletter

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"time"
)

// run is a replay from its start to its end. Several processes may work on it, one after the other.
type run struct {
	ID      string              `json:"id"`
	Started time.Time           `json:"started"`
	Options json.RawMessage     `json:"options"` // the options that decide about a letter
	Ends    map[string]position `json:"ends"`    // by partition, the run's last position

	// Tops has the ends of the partitions when the run began. They are set if the run replays a limited number of
	// letters, since Ends may then be earlier.
	Tops map[string]position `json:"tops,omitempty"`
}

// record is one message of the journal.
type record struct {
	Run    *run              `json:"run,omitempty"`    // a run that begins
	Over   string            `json:"over,omitempty"`   // ID of a run that is finished or was given up
	Spread map[string]int    `json:"spread,omitempty"` // by topic: the number of partitions that the run publishes to
	Stay   map[string][]stay `json:"stay,omitempty"`   // by partition: letters that this run must not publish
	// by partition: the last position before the canary and its copies
	Tails map[string]position `json:"tails,omitempty"`
	Sent  int                 `json:"sent,omitempty"`  // number of letters of the canary
	Sound bool                `json:"sound,omitempty"` // the canary was processed
	Dead  bool                `json:"dead,omitempty"`  // the canary died again, so the run will send another
	// by batch: bits of the done letters; empty once the batch is acknowledged
	Done  map[string][]byte `json:"done,omitempty"`
	Clear bool              `json:"clear,omitempty"` // no earlier record counts
}

// state is the sum of all records.
type state struct {
	run    *run
	spread map[string]int
	stay   map[string][]stay
	tails  map[string]position
	sent   int
	sound  bool
	done   map[string][]byte
}

func (s *state) apply(r record) {
	if r.Clear {
		*s = state{}
	}
	if r.Over != "" && s.run != nil && s.run.ID == r.Over {
		*s = state{done: s.done}
	}
	if r.Run != nil {
		s.run = r.Run
	}
	if r.Dead {
		s.tails, s.sent = nil, 0
	}
	for partition, p := range r.Tails {
		put(&s.tails, partition, p)
	}
	s.sent = max(s.sent, r.Sent)
	s.sound = s.sound || r.Sound
	for topic, n := range r.Spread {
		put(&s.spread, topic, n)
	}
	for partition, more := range r.Stay {
		all := s.stay[partition]
		for _, x := range more {
			all = slices.Insert(all, after(all, x.From), x)
		}
		put(&s.stay, partition, all)
	}
	for entry, bits := range r.Done {
		if len(bits) == 0 {
			delete(s.done, entry)
			continue
		}
		put(&s.done, entry, merge(bits, s.done[entry]))
	}
}

func put[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = value
}

// stay is a range of letters that the run has left out, and must leave out again if it is continued.
type stay struct {
	From position `json:"from"`
	To   position `json:"to"`
	Why  string   `json:"why"`
}

// after returns the index of the first range that begins after a position.
func after(all []stay, p position) int {
	return sort.Search(len(all), func(i int) bool { return p.before(all[i].From) })
}

// whyLeft returns why the run has left a letter out, or "" if it has not.
func (s *state) whyLeft(l *Letter) string {
	all := s.stay[partitionName(l.partition)]
	if i := after(all, l.pos); i > 0 && !all[i-1].To.before(l.pos) {
		return all[i-1].Why
	}
	return ""
}

// isDone reports whether l is done according to the journal.
func (s *state) isDone(l *Letter) bool {
	return bit(s.done[entryName(l.partition, l.pos)], int(l.pos.Index))
}

func entryName(partition int, p position) string {
	return fmt.Sprintf("%d:%d:%d", partition, p.Ledger, p.Entry)
}

func parseEntryName(name string) (partition int, p position) {
	_, _ = fmt.Sscanf(name, "%d:%d:%d", &partition, &p.Ledger, &p.Entry)
	return partition, p
}

func bit(bits []byte, i int) bool { return i/8 < len(bits) && bits[i/8]&(1<<(i%8)) != 0 }

func setBit(bits []byte, i int) []byte {
	for len(bits) <= i/8 {
		bits = append(bits, 0)
	}
	bits[i/8] |= 1 << (i % 8)
	return bits
}

func merge(a, b []byte) []byte {
	all := append([]byte{}, a...)
	for i := range b {
		if i < len(all) {
			all[i] |= b[i]
		} else {
			all = append(all, b[i])
		}
	}
	return all
}
