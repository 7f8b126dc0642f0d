package attempts

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/exploretest"
	"github.com/pulsar-redelivery/redelivery/internal/partition"
)

// step is one event, with its process and its message, if it has these.
type step struct {
	event   event
	process uint8
	entry   uint8
	index   uint8
}

type event uint8

const (
	pass event = iota
	lease
	receive
	send
	handle
	ack
	nack
	publish
	follow
	lose
	crash
	start
	takeOver
	unload
	rareEvents // the events below are in rareverbs_test.go
)

func (s step) String() string {
	return fmt.Sprintf("%s %d: %d.%d", [...]string{"pass", "lease", "receive", "send", "handle", "ack", "nack", "publish",
		"follow", "lose", "crash", "start", "take over", "unload", "", "tidy", "cut", "mend", "lose frame", "close",
		"start unread", "ack waiting", "ack upto", "ack whole", "snooze", "give back", "reclaim", "redeliver now", "seek",
	}[s.event], s.process, s.entry, s.index)
}

// steps returns the events that are possible now.
func (w *world) steps() (all []step) {
	all = append(all, step{event: pass})
	if w.limit > 0 {
		all = append(all, step{event: lease})
	}
	if w.unloaded < w.unloads {
		all = append(all, step{event: unload})
	}
	running := 0
	for n, p := range w.processes {
		if p != nil {
			running++
			all = append(all, p.steps(uint8(n))...)
		}
	}
	for n, p := range w.processes[:w.maxProcesses()] {
		if p == nil && (running == 0 || w.options.Kind != partition.Exclusive) {
			all = append(all, step{event: start, process: uint8(n)})
			if w.may(startUnread) {
				all = append(all, step{event: startUnread, process: uint8(n)})
			}
		}
	}
	return all
}

func (p *process) steps(n uint8) (all []step) {
	w := p.w
	add := func(may bool, s step) {
		if s.process = n; may {
			all = append(all, s)
		}
	}
	passive := w.options.Kind == partition.Failover && w.active != p.number
	add(len(p.queue) > 0 || p.group.IsReady() || !p.waits, step{event: receive})
	add(w.next() >= 0 && len(p.queue) < 3 && !passive, step{event: send})
	add(w.lag && !p.cutOff && len(p.log.own.unsent) > 0, step{event: publish})
	add(w.lag && !p.cutOff && p.framesRead < len(w.frames), step{event: follow})
	add(w.lost < w.losses && !passive, step{event: lose})
	add(w.crashed < w.crashes, step{event: crash})
	add(w.overtaken < w.takeover && passive, step{event: takeOver})
	for e, messages := range p.messages {
		for i, m := range messages {
			at := step{entry: uint8(e), index: uint8(i)}
			if m.has && w.limit > 0 && !m.inHandler {
				at.event = handle
				add(p.mayHandle(e, i), at)
			} else if m.has {
				at.event = ack
				add(true, at)
				at.event = nack
				add(true, at)
			}
		}
	}
	p.rareSteps(add)
	return all
}

func (w *world) do(s step) {
	p, e, i := w.processes[s.process], int(s.entry), int(s.index)
	switch s.event {
	case pass:
		w.pass()
	case lease:
		for range minLease/tick + 1 {
			w.pass()
		}
	case receive:
		p.receive()
	case send:
		p.send()
	case handle:
		p.handle(e, i)
	case ack:
		p.ack(e, i)
	case nack:
		p.nack(e, i)
	case publish:
		p.publish()
	case follow:
		p.follow()
	case lose:
		w.lost++
		w.lose(p)
	case crash:
		w.crashed++
		w.crash(p)
	case start:
		w.start(int(s.process))
	case takeOver:
		w.overtaken++
		w.activate(int(s.process))
	case unload:
		w.unloaded++
		w.unload()
	default:
		w.doRare(s)
	}
	w.everyone((*process).act)
	if !w.lag {
		w.everyone((*process).publish)
		w.everyone((*process).follow)
	}
}

func worldOf(k *kind) exploretest.World[*world, step] {
	var x walk
	return exploretest.World[*world, step]{
		New:      func() *world { return newWorld(k) },
		Steps:    (*world).steps,
		Do:       (*world).do,
		Check:    func(w *world) string { return w.fault },
		Complete: func(w *world) string { w.complete(); return w.fault },
		Hash:     x.hash,
	}
}

func kinds() []*kind {
	of := func(k partition.Kind) partition.Options { return partition.Options{Kind: k, MemoryLimit: 100} }
	exclusive, failover, shared := of(partition.Exclusive), of(partition.Failover), of(partition.Shared)
	noMemory := shared
	noMemory.MemoryLimit = 0
	short := time.Second - 10*time.Millisecond
	delays := [3]time.Duration{short, 2*time.Second + short, short}
	both := []step{{event: send}, {event: receive}, {event: lose}, {event: send, process: 1}, {event: receive, process: 1}}
	swallowed := []step{{event: send}, {event: receive}, {event: nack}, {event: pass}, {event: receive}, {event: ack}, {event: lose},
		{event: pass}, {event: send, process: 1}, {event: receive, process: 1}}
	away := []step{{event: send}, {event: receive}, {event: nack}, {event: cut, process: 1}, {event: pass}, {event: receive}, {event: ack},
		{event: pass}, {event: pass}, {event: pass}}
	return []*kind{
		{name: "shared", options: shared, batches: []int{1}, delays: delays, first: 2, losses: 2, crashes: 1, depth: 6},
		{name: "shared with a late log", options: shared, batches: []int{1}, delays: delays, first: 2, lag: true, losses: 2, crashes: 1, depth: 6},
		{name: "shared, both processes have received the message", options: shared, batches: []int{1}, delays: delays, first: 2, losses: 2, crashes: 2, depth: 6, prefix: both},
		{name: "shared, both processes have received the message, with a late log", options: shared, batches: []int{1}, delays: delays, first: 2, lag: true, losses: 2, crashes: 2, depth: 5, prefix: both},
		{name: "exclusive", options: exclusive, batches: []int{1, 1}, delays: delays, first: 1, losses: 1, crashes: 2, depth: 7},
		{name: "failover", options: failover, batches: []int{1, 1}, delays: delays, first: 2, losses: 1, crashes: 1, takeover: 2, depth: 6},
		{name: "exclusive with a late log", options: exclusive, batches: []int{1}, delays: delays, first: 1, lag: true, losses: 1, crashes: 2, depth: 7},
		{name: "failover with a late log", options: failover, batches: []int{1}, delays: delays, first: 2, lag: true, losses: 1, crashes: 1, takeover: 2, depth: 5},
		{name: "shared, three messages", options: shared, batches: []int{1, 1, 1}, delays: delays, first: 2, losses: 1, crashes: 1, depth: 5},
		{name: "shared without memory", options: noMemory, batches: []int{1}, delays: delays, first: 2, losses: 2, crashes: 2, depth: 5, prefix: both},
		{name: "shared with batches", options: shared, batches: []int{2}, delays: delays, first: 2, losses: 2, crashes: 2, depth: 6},
		{name: "shared with unloads", options: shared, batches: []int{1, 1}, delays: delays, first: 2, unloads: 1, crashes: 1, depth: 6},
		{name: "key-shared", options: of(partition.KeyShared), batches: []int{1}, delays: delays, first: 2, losses: 1, crashes: 2, depth: 6, prefix: both},
		{name: "crashes, both processes have received the message", options: shared, batches: []int{1}, delays: delays, first: 2, losses: 2, crashes: 2, limit: 1, depth: 5, prefix: both},
		{name: "crashes of the active process", options: failover, batches: []int{1, 1}, delays: delays, first: 2, crashes: 2, takeover: 1, limit: 1, depth: 5},
		{name: "crashes", options: shared, batches: []int{1, 1}, delays: delays, first: 2, crashes: 2, limit: 2, depth: 5},
		{name: "tidied log", options: shared, batches: []int{1}, delays: delays, first: 2, losses: 1, crashes: 1, depth: 5, rare: map[event]int{tidy: 2}},
		{name: "tidied late log", options: shared, batches: []int{1}, delays: delays, first: 2, lag: true, losses: 1, crashes: 1, depth: 4, prefix: both, rare: map[event]int{tidy: 1}},
		{name: "lost acks", options: shared, batches: []int{1}, delays: delays, first: 2, losses: 1, crashes: 1, depth: 6, prefix: swallowed},
		{name: "RedeliverNow and a tidied log", options: shared, batches: []int{1}, delays: delays, first: 2, losses: 2, depth: 4, prefix: both, rare: map[event]int{tidy: 1, redeliverNow: 1}},
		{name: "the log is away", options: shared, batches: []int{1}, delays: delays, first: 2, losses: 1, crashes: 1, depth: 5, rare: map[event]int{cut: 2}},
		{name: "lost frames", options: shared, batches: []int{1}, delays: delays, first: 2, lag: true, losses: 1, depth: 6, rare: map[event]int{loseFrame: 1}},
		{name: "closed processes", options: shared, batches: []int{1}, delays: delays, first: 2, losses: 1, depth: 5, rare: map[event]int{quit: 2, startUnread: 1, snooze: 1}},
		{name: "cumulative acks", options: exclusive, batches: []int{1, 1}, delays: delays, first: 1, losses: 1, depth: 6, rare: map[event]int{ackUpto: 1, quit: 1, ackWaiting: 1, snooze: 1}},
		{name: "cumulative acks on failover", options: failover, batches: []int{1, 1}, delays: delays, first: 2, losses: 1, takeover: 1, depth: 5, rare: map[event]int{ackUpto: 1, quit: 1, cut: 1, ackWaiting: 1}},
		{name: "whole batches", options: shared, batches: []int{2}, delays: delays, first: 2, losses: 1, depth: 5, rare: map[event]int{ackWhole: 1, ackWaiting: 1, snooze: 1}},
		{name: "GiveBack, Reclaim and RedeliverNow", options: shared, batches: []int{1}, delays: delays, first: 2, losses: 1, depth: 5, rare: map[event]int{giveBack: 1, reclaim: 1, redeliverNow: 1}},
		{name: "ack timeouts", options: shared, batches: []int{1}, delays: delays, first: 2, losses: 1, timeout: 2 * tick, depth: 5, rare: map[event]int{ackWaiting: 1, snooze: 1}},
		{name: "three processes", options: shared, batches: []int{1}, delays: delays, first: 2, third: true, losses: 2, crashes: 1, depth: 4, prefix: both},
		{name: "Seek", options: shared, batches: []int{1}, delays: delays, first: 2, losses: 1, depth: 4, rare: map[event]int{seek: 1}},
		{name: "crashes while the log is away", options: shared, batches: []int{1}, delays: delays, first: 2, crashes: 1, limit: 1, depth: 4, rare: map[event]int{cut: 1}},
		{name: "crashes and a tidied log", options: shared, batches: []int{1}, delays: delays, first: 2, losses: 1, crashes: 2, limit: 2, depth: 4, prefix: both, rare: map[event]int{tidy: 1}},
		{name: "crashes, GiveBack and Close", options: shared, batches: []int{1}, delays: delays, first: 2, losses: 1, crashes: 1, limit: 1, depth: 4, rare: map[event]int{giveBack: 1, quit: 1, snooze: 1, reclaim: 1}},
		{name: "crashes of three processes", options: shared, batches: []int{1}, delays: delays, first: 2, third: true, losses: 1, crashes: 2, limit: 1, depth: 4, prefix: both},
		{name: "tidied while the log is away", options: shared, batches: []int{1}, delays: delays, first: 2, depth: 4, prefix: away, rare: map[event]int{cut: 1, tidy: 1}},
		{name: "Seek with a late log", options: shared, batches: []int{1}, delays: delays, first: 2, lag: true, losses: 1, depth: 5, rare: map[event]int{seek: 1, loseFrame: 1}},
		{name: "Seek while the log is away", options: shared, batches: []int{1}, delays: delays, first: 2, losses: 1, depth: 4, rare: map[event]int{seek: 1, cut: 1, tidy: 1}},
		{name: "crashes of batches", options: shared, batches: []int{2}, delays: delays, first: 2, losses: 1, crashes: 1, limit: 1, depth: 4},
		{name: "crashes on failover while the log is away", options: failover, batches: []int{1}, delays: delays, first: 2, crashes: 1, takeover: 1, limit: 1, depth: 4, rare: map[event]int{cut: 1}},
		{name: "crashes before the log is read", options: shared, batches: []int{1}, delays: delays, first: 2, crashes: 2, limit: 1, depth: 4, rare: map[event]int{startUnread: 1}},
		{name: "lost frames and a tidied log", options: shared, batches: []int{1}, delays: delays, first: 2, lag: true, losses: 1, depth: 5, prefix: both, rare: map[event]int{loseFrame: 1, tidy: 1}},
		{name: "crashes of busy processes", options: shared, batches: []int{1}, delays: delays, first: 2, crashes: 3, limit: 1, busy: 2, depth: 6},
	}
}

// TestExplorationOfTwoProcesses plays its worlds one after another: virtual time advances only while the goroutine that
// moves it has a processor.
func TestExplorationOfTwoProcesses(t *testing.T) {
	t.Parallel() // the other tests wait for a broker
	for _, k := range kinds() {
		t.Run(strings.ReplaceAll(k.name, " ", "-"), func(t *testing.T) {
			depth, began := exploretest.Depth(k.depth), time.Now()
			synctest.Test(t, func(t *testing.T) {
				x := exploretest.Explore(worldOf(k), k.prefix, depth)
				if x.Found != nil {
					t.Error(x)
				}
				t.Logf("depth %d: %d states", depth, x.States)
			})
			t.Logf("in %v", time.Since(began).Round(time.Millisecond))
		})
	}
}
