package attempts

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/partition"
)

// A world is a broker with a topic of a few messages and the topic of their log, and two processes that consume the
// messages. A process has a Group of internal/partition and a Log, and uses both as a Consumer does. The exploration
// plays everything that can happen in a few steps.

const tick = time.Second

// kind describes a world before its first step, and the events that may happen in it.
type kind struct {
	name     string
	options  partition.Options
	batches  []int            // number of messages in each entry
	delays   [3]time.Duration // delay of the nacks of each process
	prefix   []step           // steps with which all histories begin
	depth    int              // steps that the exploration plays
	first    int              // number of processes that run at first
	lag      bool             // a process reads the log late
	losses   int              // connections that may be lost
	unloads  int              // unloads of the topic: all connections and the broker's counts are lost
	crashes  int              // processes that may crash
	takeover int              // how often a Failover partition may change hands without a crash
	limit    int              // the crash limit; 0 for no Worker
	busy     int              // processes that are too busy to record a message before they handle it
	third    bool             // three processes may run
	timeout  time.Duration    // the ack timeout; 0 for none
	rare     map[event]int    // how often rare events may happen
}

const nobody = -1

// entry is an entry of the topic, as the broker knows it.
type entry struct {
	acked []bool
	owner int // the process that the broker sent it to
	count uint32
	pasts []past // by index
}

// past is the history of a message, in all processes.
type past struct {
	deliveries     uint32 // hand-overs
	requests       uint32 // requests that the broker counted
	crashes        int    // crashes of processes that had it in a handler
	doubtful       int    // crashes of processes that had just settled it, or failed on it
	settled        bool   // a process settled it; the acknowledgement may be lost
	stays          bool   // its record stays in the log: a process failed on it without knowing that it was settled
	sharedHandlers int    // handlers that got it while another process had it in a handler
}

type world struct {
	*kind
	began     time.Time
	entries   []*entry
	frames    []readFrame
	truths    [][]known       // the facts that each frame's changes should state
	processes [3]*process     // nil for one that does not run
	active    int             // the active process of a Failover subscription
	sessions  SessionID       // number of sessions that began
	lost      int             // connections that were lost
	unloaded  int             // unloads that happened
	crashed   int             // processes that crashed
	overtaken int             // changes of the active process without a crash
	used      [lastEvent]int8 // how often each rare event happened
	trimmed   position        // the broker has deleted the log up to this position
	unwritten bool            // a process was closed that could not write its changes
	reader    *state          // the state after all frames
	fault     string          // the first promise that was broken; "" for none
}

// newWorld returns a world in which the processes have read the log, and the broker has sent no message.
func newWorld(k *kind) *world {
	w := &world{kind: k, began: time.Now(), reader: newState()}
	for _, size := range k.batches {
		w.entries = append(w.entries, &entry{acked: make([]bool, size), owner: nobody, pasts: make([]past, size)})
	}
	for i := range k.first {
		w.start(i)
		if l := w.processes[i].log; i < k.busy {
			l.sessions.spent = now() + time.Hour.Milliseconds()
		}
	}
	w.everyone((*process).follow)
	return w
}

func (w *world) now() time.Duration { return time.Since(w.began) }

func (w *world) fail(format string, args ...any) {
	if w.fault == "" {
		w.fault = fmt.Sprintf(format, args...)
	}
}

// view returns the state of the log that a process reads if it starts now, and the frames on which the state of later
// processes depends.
func (w *world) view() (*state, []readFrame) {
	if w.rare[tidy]+w.rare[cut]+w.rare[loseFrame]+w.rare[startUnread] == 0 {
		return w.reader, nil
	}
	s, from := newState(), w.checkpoint()
	for _, r := range w.frames[from:] {
		s.apply(r)
	}
	return s, w.frames[from:]
}

// checkpoint returns how many frames a process skips if it starts now.
func (w *world) checkpoint() int {
	if len(w.frames) == 0 {
		return 0
	}
	return int(max(w.frames[len(w.frames)-1].checkpoint.entry, w.trimmed.entry))
}

// maxProcesses is how many processes may run at once.
func (w *world) maxProcesses() int {
	if w.third {
		return 3
	}
	return 2
}

// everyone calls do with each process that runs.
func (w *world) everyone(do func(*process)) {
	for _, p := range w.processes {
		if p != nil {
			do(p)
		}
	}
}

// rewinds reports whether the broker answers a request by sending everything unacknowledged to its one consumer again.
func (w *world) rewinds() bool {
	return w.options.Kind == partition.Exclusive || w.options.Kind == partition.Failover
}

// start starts a process: its log is read before it subscribes.
func (w *world) start(number int) *process { return w.begin(number, false) }

// begin starts a process. If it is cut off, it begins without the log.
func (w *world) begin(number int, cut bool) *process {
	w.sessions++
	o := Options{Topic: "log", Name: fmt.Sprint(number), Retention: defaultRetention, Logger: slog.New(slog.DiscardHandler)}
	p := &process{w: w, number: number, log: newLog(nil, o, w.sessions), start: w.now(), waits: true, cutOff: cut}
	p.framesRead = w.checkpoint()
	p.log.sessions.begins = true
	if w.limit > 0 {
		p.log.KeepAlive()
	}
	options := w.options
	options.AckedAfter, options.Reports = tick, true
	p.group = partition.New(options)
	for _, size := range w.batches {
		p.messages = append(p.messages, make([]held, size))
		p.known = append(p.known, make([]known, size))
		p.unread = append(p.unread, make([]known, size))
		p.removedAt = append(p.removedAt, make([]known, size))
		p.hurried = append(p.hurried, make([]bool, size))
	}
	if w.processes[number] = p; cut {
		p.log.failure = errCut
	}
	p.publish()
	p.follow()
	if w.options.Kind == partition.Failover && (w.active == number || w.processes[w.active] == nil) {
		w.activate(number)
	}
	p.waits = false
	p.act()
	return p
}

// publish writes a process's changes to the log, as Log.write does.
func (p *process) publish() {
	for !p.cutOff {
		f, places, _ := p.log.next(false)
		if f == nil {
			return
		}
		p.write(f, places)
	}
}

// write writes a frame.
func (p *process) write(f *frame, places []place) {
	p.log.sessions.stateSent(f)
	decoded, err := decode(f.encode())
	if err != nil {
		panic(err)
	}
	w := p.w
	r := readFrame{frame: decoded, at: position{1, int64(len(w.frames)) + 1}, time: now(), now: now()}
	w.frames = append(w.frames, r)
	w.truths = append(w.truths, p.truths(f))
	w.reader.apply(r)
	if t := &p.log.tidying; t.mark != (position{}) && f.checkpoint == t.mark { // as Log.tidied, without a broker
		w.trimmed, *t = t.mark, tidying{}
	}
	p.log.sent(&link{}, f, places, r.at.id())
}

// follow reads the log to its end.
func (p *process) follow() {
	for ; !p.cutOff && p.framesRead < len(p.w.frames); p.framesRead++ {
		r := p.w.frames[p.framesRead]
		r.now = now() + 2
		p.log.take(r)
		p.learn(r, p.w.truths[p.framesRead])
	}
}

// next returns the entry that the broker sends next, or −1.
func (w *world) next() int {
	return slices.IndexFunc(w.entries, func(e *entry) bool {
		return e.owner == nobody && slices.Contains(e.acked, false)
	})
}

// takeBack lets the broker take back everything that a process has not acknowledged.
func (w *world) takeBack(number int) {
	for _, e := range w.entries {
		if e.owner == number {
			e.owner = nobody
		}
	}
}

// pass lets time pass. All commands reach the broker.
func (w *world) pass() {
	w.everyone((*process).flush)
	w.everyone((*process).publish)
	time.Sleep(tick)
	if !w.lag {
		w.everyone((*process).publish) // renewals of leases
		w.everyone((*process).follow)
	}
	w.everyone((*process).act)
}

// lose breaks the connection of a process.
func (w *world) lose(p *process) {
	w.takeBack(p.number)
	p.pipe = nil
	for _, o := range p.queue {
		o.of.stale = true
	}
	p.group.Lost(w.now())
}

// crash ends a process without closing it.
func (w *world) crash(p *process) {
	for e, messages := range p.messages {
		for i, m := range messages {
			b := &w.entries[e].pasts[i]
			switch r, _ := w.reader.find(w.key(e, i)); {
			case m.inHandler && (r.begun == p.log.id || w.rare[cut]+w.rare[startUnread] == 0):
				b.crashes++
			case r.begun == p.log.id:
				b.doubtful++
			}
		}
	}
	w.takeBack(p.number)
	w.processes[p.number] = nil
	w.replaceActive(p)
}

// replaceActive makes another process the active one of a Failover subscription, if the process that ended was active.
func (w *world) replaceActive(p *process) {
	for _, other := range w.processes {
		if w.options.Kind == partition.Failover && w.active == p.number && other != nil {
			w.activate(other.number)
			return
		}
	}
}

// activate makes a process the active one of a Failover subscription.
func (w *world) activate(number int) {
	if old := w.processes[w.active]; old != nil && w.active != number {
		w.takeBack(w.active)
		old.group.Activate(w.now(), topicName, old, false)
	}
	w.active = number
	w.processes[number].group.Activate(w.now(), topicName, w.processes[number], true)
}

// unload breaks all connections and loses the broker's counts.
func (w *world) unload() {
	for _, e := range w.entries {
		e.count = 0
	}
	w.everyone(w.lose)
}

const topicName = "persistent://t"

func (w *world) id(e, i int) partition.ID {
	return partition.ID{Topic: topicName, Ledger: 1, Entry: int64(e), Index: int32(i)}
}

func (w *world) key(e, i int) Key { return Key{topicName, 1, int64(e), int32(i)} }
