package attempts

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pulsar-redelivery/redelivery/internal/partition"
)

// The rarer events. kind.rare says how often each may happen.
const (
	tidy        event = rareEvents + 1 + iota // a process tidies the log
	cut                                       // a process can no longer reach the log
	mend                                      // the process reaches the log again
	loseFrame                                 // a process loses a frame with its connection to the log
	quit                                      // a process closes
	startUnread                               // a process starts without having read the log
	ackWaiting
	ackUpto
	ackWhole
	snooze
	giveBack
	reclaim
	redeliverNow
	seek
	lastEvent
)

// may reports whether a rare event may happen once more.
func (w *world) may(e event) bool { return int(w.used[e]) < w.rare[e] }

// rareSteps adds the rarer events that can happen now.
func (p *process) rareSteps(add func(bool, step)) {
	w, l := p.w, p.log
	if len(w.rare) == 0 {
		return
	}
	holds := slices.ContainsFunc(p.messages, func(all []held) bool {
		return slices.ContainsFunc(all, func(m held) bool { return m.has })
	})
	add(w.may(tidy) && !l.tidying.forced && l.tidying.number == 0 && l.tidying.mark == position{}, step{event: tidy})
	add(w.may(cut) && !p.cutOff, step{event: cut})
	add(p.cutOff, step{event: mend})
	add(w.may(loseFrame) && !p.cutOff && len(l.own.unsent) > 0, step{event: loseFrame})
	add(w.may(quit), step{event: quit})
	add(w.may(giveBack) && !holds, step{event: giveBack})
	add(w.may(redeliverNow) && p.group.Stats().Waiting > 0, step{event: redeliverNow})
	add(w.may(seek), step{event: seek})
	for e, messages := range p.messages {
		for i, m := range messages {
			at := func(of event) step { return step{event: of, entry: uint8(e), index: uint8(i)} }
			info, open, _ := p.group.Find(w.id(e, i), partition.AnyHand)
			handled := m.has && (w.limit == 0 || m.inHandler)
			add(w.may(ackWaiting) && !m.has && m.had && open, at(ackWaiting))
			add(w.may(ackUpto) && handled, at(ackUpto))
			add(w.may(ackWhole) && handled && len(messages) > 1, at(ackWhole))
			add(w.may(snooze) && handled, at(snooze))
			add(w.may(reclaim) && m.has && !m.inHandler && info.Stale, at(reclaim))
		}
	}
}

func (w *world) doRare(s step) {
	p, e, i := w.processes[s.process], int(s.entry), int(s.index)
	w.used[s.event]++
	switch s.event {
	case tidy:
		p.log.tidying = tidying{forced: true, since: p.log.state.checkpoint, at: 1}
	case cut:
		p.loseLog()
	case mend:
		w.used[mend] = 0
		p.mend()
	case loseFrame:
		f, _, _ := p.log.next(false)
		p.log.sessions.stateSent(f)
		p.log.notSent(f)
		p.loseLog()
	case quit:
		p.quit()
	case startUnread:
		w.begin(int(s.process), true)
	case ackWaiting:
		p.settleAs(e, i, partition.Moved)
	case ackUpto:
		p.ackUpto(e, i)
	case ackWhole:
		p.ackWhole(e)
	case snooze:
		p.nackOrSnooze(e, i, true)
	case giveBack:
		p.giveBack()
	case reclaim:
		info, _, _ := p.group.Find(w.id(e, i), p.messages[e][i].hand)
		p.group.TakeBackStale(w.now(), info.Delivery)
		p.messages[e][i].has = false
	case redeliverNow:
		p.group.RedeliverNow(w.now())
		for e := range p.hurried {
			for i := range p.hurried[e] {
				r, _ := p.log.Find(w.key(e, i))
				p.hurried[e][i] = r.Session == p.log.id
			}
		}
	case seek:
		w.seek(p)
	}
}

var errCut = errors.New("the log cannot be reached")

// loseLog notes that a process can no longer reach the log.
func (p *process) loseLog() {
	p.cutOff, p.log.failure = true, errCut
	for e, messages := range p.messages { // the session cannot renew its lease, so a crash may be counted
		for i := range messages {
			if r, _ := p.w.reader.find(p.w.key(e, i)); r.begun == p.log.id {
				p.w.entries[e].pasts[i].doubtful++
			}
		}
	}
}

// mend lets a process reach the log again. Like Log.session, it begins to read where the previous link ended.
func (p *process) mend() {
	if !p.cutOff {
		return
	}
	w, l := p.w, p.log
	p.cutOff = false
	if l.state.last == (position{}) {
		p.framesRead = w.checkpoint()
	} else {
		p.framesRead = max(p.framesRead, int(w.trimmed.entry))
		l.reconnected()
		l.tidying.at = 1 // not at random
	}
	l.sessions.begins = true
	l.own.requeue(l.state.records)
}

// quit imitates Consumer.Close.
func (p *process) quit() {
	w := p.w
	p.flush()
	w.takeBack(p.number)
	w.unwritten = w.unwritten || p.cutOff
	for !p.cutOff {
		f, places, _ := p.log.next(true)
		p.write(f, places)
		if f.has(ends) {
			break
		}
	}
	w.processes[p.number] = nil
	w.replaceActive(p)
}

// ackUpto imitates Consumer.AckCumulative.
func (p *process) ackUpto(e, i int) {
	w, id := p.w, p.w.id(e, i)
	p.endHandler(e, i)
	d, _ := p.group.Upto(id)
	o := d.Object.(*object)
	again, _ := p.group.SettleUpto(w.now(), id, nil)
	through := e - 1
	if i == len(o.of.unacked)-1 || again != nil {
		through = e
	}
	for x := range through + 1 {
		p.pipe = append(p.pipe, command{entry: x})
	}
	for x := range e + 1 {
		for y := range p.messages[x] {
			if i, _, _ := p.group.Find(w.id(x, y), partition.AnyHand); i.State == partition.Settled {
				p.settled(x, y)
			}
		}
	}
	p.act()
}

// ackWhole imitates Consumer.AckID of the id of a batch.
func (p *process) ackWhole(e int) {
	id := p.w.id(e, 0)
	id.Index = -1
	p.pipe = append(p.pipe, command{entry: e})
	_ = p.group.SettleEntry(p.w.now(), id)
	for i := range p.messages[e] {
		p.endHandler(e, i)
		p.settled(e, i)
	}
	p.act()
}

// settled notes that a process has settled a message.
func (p *process) settled(e, i int) {
	p.messages[e][i] = held{settled: true}
	b := &p.w.entries[e].pasts[i]
	b.settled = true
	p.removedAt[e][i] = known{count: p.knows(e, i).count, read: p.framesRead}
	p.unread[e][i] = known{}
	b.stays = b.stays || p.framesRead < len(p.w.frames)
	p.w.everyone(func(other *process) { b.stays = b.stays || other.unread[e][i] != known{} })
}

// giveBack imitates Consumer.GiveBack and the next Receive, which subscribes again.
func (p *process) giveBack() {
	w := p.w
	p.publish()
	p.follow()
	p.flush()
	w.takeBack(p.number)
	p.queue = nil
	p.group.GiveBack(w.now())
	p.act()
	p.group.Lost(w.now())
}

// seek imitates Consumer.Seek to the first message: the broker disconnects all consumers.
func (w *world) seek(p *process) {
	for _, of := range w.entries {
		of.count = 0
		clear(of.acked)
	}
	w.everyone(w.lose)
	p.queue = nil
	p.group.Forget()
	p.log.Reset()
	for e := range p.messages {
		clear(p.messages[e])
		clear(p.unread[e])
		clear(p.known[e])
		clear(p.hurried[e])
	}
	w.everyone(func(p *process) {
		for _, messages := range p.messages {
			for i := range messages {
				messages[i].settled = false
			}
		}
	})
}

// checkLog checks that the log has no records once all messages are settled and the removals are written. It checks
// nothing if a process crashed, or was closed while it could not reach the log: then its removals are missing.
func (w *world) checkLog() {
	if w.crashed > 0 || w.limit > 0 || w.unwritten {
		return
	}
	for range 2*settleDelay/tick + 2 {
		w.everyone((*process).work)
		w.pass()
	}
	w.checkRecords(w.reader, "the log")
	w.everyone(func(p *process) {
		w.checkRecords(p.log.state, fmt.Sprint("process ", p.number))
		if o := &p.log.own; len(o.byPlace)+len(o.unsent)+len(o.later)+len(o.sent) > 0 {
			w.fail("process %d: %d changes, %d to send, %d later, %d sent", p.number, len(o.byPlace), len(o.unsent),
				len(o.later), len(o.sent))
		}
	})
}

func (w *world) checkRecords(s *state, of string) {
	for p, r := range s.records {
		if !w.entries[p.entry].pasts[p.index].stays {
			w.fail("%s has the record of settled message %d.%d, count %d", of, p.entry, p.index, r.count)
		}
	}
}
