package attempts

import (
	"slices"

	"github.com/pulsar-redelivery/redelivery/internal/partition"
)

// known has the facts about a message in the frames of a log: its highest count of failures, and until when it waits.
type known struct {
	count uint32
	due   int64
	// For the removal of a settled message: how many frames the process had read when it settled the message. A later
	// failure in another process, with a higher count, survives the removal: the acknowledgement was lost.
	read int
}

func (k *known) add(other known) {
	if other.count > k.count {
		*k = other
	} else if other.count == k.count {
		k.due = max(k.due, other.due)
	}
}

// truths returns the facts that the changes of a frame should have. If this process knows more failures of a message,
// or a later due time, these count instead.
func (p *process) truths(f *frame) (all []known) {
	for _, c := range f.changes {
		k := known{count: c.count, due: now() + c.delay}
		switch {
		case c.removed:
			k = p.removedAt[c.Entry][c.Index]
		case f.has(copies):
			k = p.known[c.Entry][c.Index]
		default:
			k.add(p.unread[c.Entry][c.Index])
		}
		all = append(all, k)
	}
	return all
}

// learn notes the facts in a frame, with code that is independent of package attempts.
func (p *process) learn(r readFrame, truths []known) {
	if r.has(resets) {
		for e := range p.known {
			clear(p.known[e])
		}
	}
	for n, c := range r.changes {
		e, i := int(c.Entry), int(c.Index)
		if c.removed {
			p.known[e][i] = p.w.failuresAfter(c.Key, truths[n], r.session, p.framesRead)
			continue
		}
		if r.has(copies) && p.w.isRemoved(c.Key, r.asOf, p.framesRead) {
			continue
		}
		p.hurried[e][i] = p.hurried[e][i] && (r.has(copies) || r.session == p.log.id)
		p.known[e][i].add(truths[n])
		if own := &p.unread[e][i]; r.session == p.log.id && truths[n].count >= own.count {
			*own = known{}
		}
	}
}

// isRemoved reports whether a message was removed from the log after a mark, and before the frame with the number n.
func (w *world) isRemoved(k Key, mark position, n int) bool {
	return slices.ContainsFunc(w.frames[mark.entry:n], func(r readFrame) bool {
		return r.has(resets) || slices.ContainsFunc(r.changes, func(c change) bool { return c.removed && c.Key == k })
	})
}

// failuresAfter returns the facts in the frames between a settlement and the frame with the number n.
func (w *world) failuresAfter(k Key, settled known, by SessionID, n int) (after known) {
	for i, r := range w.frames[settled.read:n] {
		for j, c := range r.changes {
			fact := w.truths[settled.read+i][j]
			if c.Key == k && !c.removed && r.session != by && fact.count > settled.count {
				after.add(fact)
			}
		}
	}
	return after
}

// knows returns the facts that a process knows about a message's failures.
func (p *process) knows(e, i int) known {
	k := p.known[e][i]
	k.add(p.unread[e][i])
	return k
}

// noteOwn notes a failure in this process or, if the message was snoozed, only its delay.
func (p *process) noteOwn(e, i int, due int64, snoozed bool) {
	count := max(p.messages[e][i].count, p.knows(e, i).count)
	if !snoozed {
		count++
	}
	p.unread[e][i] = known{count: count, due: due}
	b := &p.w.entries[e].pasts[i]
	b.stays = b.stays || b.settled
}

// checkHandOver checks the promises for a hand-over. o is the copy, or nil for a hand-over from memory. Two kinds of
// copies may be handed out although another process has the message: copies that upstream had before a lost connection,
// and copies that a request crossed. The comment of package partition lists both as known windows. After a
// RedeliverNow, early hand-overs are not checked.
func (p *process) checkHandOver(d partition.Delivery, o *object) {
	w, e, i := p.w, int(d.ID.Entry), int(d.ID.Index)
	m, k, of := p.messages[e][i], p.knows(e, i), w.entries[e]
	b := of.pasts[i]
	switch {
	case m.settled:
		w.fail("%d.%d handed out by %d, which has settled it", e, i, p.number)
	case m.has:
		w.fail("%d.%d handed out by %d, whose application has it", e, i, p.number)
	case now()+1 < k.due && w.used[redeliverNow] == 0:
		w.fail("%d.%d handed out by process %d, %d ms before the end of a delay that it knows", e, i, p.number, k.due-now())
	case d.Count < k.count:
		w.fail("%d.%d handed out with count %d by process %d, which knows count %d", e, i, d.Count, p.number, k.count)
	case d.Count > b.deliveries+b.requests:
		w.fail("%d.%d handed out by %d with count %d after %d deliveries", e, i, p.number, d.Count, b.deliveries)
	case w.options.Kind == partition.Failover && w.active != p.number:
		w.fail("%d.%d handed out by %d, which is not active", e, i, p.number)
	case (o == nil || !o.of.stale) && !m.crossed && of.owner != nobody && of.owner != p.number:
		w.fail("%d.%d handed out by %d, and the broker has sent it to the other", e, i, p.number)
	}
}

// checkHandler checks that a message in a handler has crashed fewer processes than the limit. The log misses two kinds
// of crashes. First, a process may be too busy to record the message before the handler gets it. Second, after a lost
// connection two processes may have the message in a handler at the same time; a record names only one session, so the
// log misses the crash of the other. It does not check a settled message whose acknowledgement was lost: that is a new
// message for the log. It does not check a process that cannot reach the log, since that process knows of no crash.
func (p *process) checkHandler(e, i int) {
	w := p.w
	if b := w.entries[e].pasts[i]; !p.cutOff && !b.settled && b.crashes >= w.limit+w.busy+b.sharedHandlers {
		w.fail("%d.%d is handled after it has crashed %d processes", e, i, b.crashes)
	}
}

// checkDead checks that a message becomes a dead letter only after it has crashed as many processes as the limit
// allows.
func (p *process) checkDead(e, i int) {
	if b := p.w.entries[e].pasts[i]; b.crashes+b.doubtful < p.w.limit {
		p.w.fail("%d.%d is dead after it has crashed %d processes", e, i, b.crashes)
	}
}

// complete continues a world until all messages are settled: processes run and read all frames, commands reach the
// broker, and the application settles the messages that it gets. With a crash limit, the first message alternately
// crashes a process and fails. In the end, every message must be acknowledged at the broker.
func (w *world) complete() {
	fair := *w.kind
	fair.lag = false
	w.kind = &fair
	w.everyone((*process).mend)
	if w.processes == [3]*process{} {
		w.start(0)
	}
	for turn := range 150 {
		w.everyone((*process).flush)
		for w.next() >= 0 {
			w.sendTo(turn).send()
		}
		w.everyone(func(p *process) {
			w.everyone((*process).publish)
			w.everyone((*process).follow)
			p.work()
		})
		if w.fault != "" {
			return
		}
		if w.isComplete() {
			w.checkLog()
			return
		}
		w.pass()
	}
	for e, of := range w.entries {
		if slices.Contains(of.acked, false) {
			w.fail("in the end entry %d is stuck: process %d has it", e, of.owner)
		}
	}
}

// sendTo returns the process to which the broker sends in this turn.
func (w *world) sendTo(turn int) *process {
	n := turn % w.maxProcesses()
	if w.options.Kind == partition.Failover {
		n = w.active
	}
	for w.processes[n] == nil {
		n = (n + 1) % w.maxProcesses()
	}
	return w.processes[n]
}

// work lets the application take and settle all messages that are there.
func (p *process) work() {
	for range 20 {
		idle := len(p.queue) == 0 && !p.group.IsReady()
		p.receive()
		p.act()
		for e, messages := range p.messages {
			for i := range messages {
				m := &messages[i]
				if m.has && p.w.limit > 0 && !m.inHandler && p.mayHandle(e, i) {
					p.handle(e, i)
				}
				switch {
				case !m.has || p.w.limit > 0 && !m.inHandler:
				case p.w.limit > 0 && e == 0 && i == 0 && p.w.entries[0].pasts[0].deliveries%2 == 0:
					p.nack(e, i)
				case p.w.limit > 0 && e == 0 && i == 0:
					p.w.crash(p)
					p.w.start(p.number)
					return
				default:
					p.ack(e, i)
				}
			}
		}
		if idle {
			return
		}
	}
}

func (w *world) isComplete() bool {
	return !slices.ContainsFunc(w.entries, func(e *entry) bool { return slices.Contains(e.acked, false) })
}
