package simulate

import "container/heap"

// instance is a Consumer and its Worker.
type instance struct {
	*world
	number  int
	queue   fifo // prefetched
	ready   fifo // due again, here
	idle    int  // places for handlers
	again   bool // the last delivered message had waited
	unacked int  // at the broker
	blocked bool // by them

	last20 []bool // whether each failed; see the ledger's outcomes

	// WithPauseOnFailure, see worker/outage.go:
	recent  []bool // whether each of the window failed
	outage  bool
	era     int // outages until now
	tries   uint32
	probing bool // a place waits for its pause, or tries its message
	held    fifo // what places have and do not handle
}

// permits reports whether the broker may send a message. A consumer with too many unacknowledged ones is blocked until half of them are gone.
func (i *instance) permits() bool {
	switch {
	case i.MaxUnacked == 0:
	case i.unacked >= i.MaxUnacked:
		i.blocked = true
	case i.unacked < i.MaxUnacked/2:
		i.blocked = false
	}
	return !i.blocked && i.queue.len() < i.Queue
}

// take fills the places: what comes back and what is new take turns.
func (i *instance) take() {
	for i.idle > 0 && i.ready.len()+i.queue.len() > 0 {
		i.again = i.queue.len() == 0 || i.ready.len() > 0 && !i.again
		from := &i.queue
		if i.again {
			from = &i.ready
		}
		m := from.pop()
		i.idle--
		if i.outage {
			i.hold(m)
		} else {
			i.handle(m, fails)
		}
	}
}

// handle calls the handler; of is what happens if it fails.
func (i *instance) handle(m *message, of kind) {
	if !i.call() {
		of = succeeds
	}
	i.at(i.Handler, of, m, i.number)
}

// finish settles a message, or keeps it in its place.
func (i *instance) finish(m *message, of kind) {
	failed := of != succeeds
	keep := i.report(m, failed, of == probed)
	switch {
	case keep:
		i.hold(m)
		return
	case !failed:
		i.settled(false)
		i.handled++
		i.unacked--
	default:
		i.nack(m)
	}
	i.idle++
	i.take()
}

// settled notes what became of a message.
func (i *instance) settled(failed bool) {
	if i.last20 = append(i.last20, failed); len(i.last20) > 20 {
		i.last20 = i.last20[1:]
	}
}

// seemsBroken reports whether this instance seems to be what fails.
func (i *instance) seemsBroken() bool {
	return count(i.last20) >= 18
}

func count(failed []bool) (n int) {
	for _, f := range failed {
		if f {
			n++
		}
	}
	return n
}

func (i *instance) nack(m *message) {
	i.settled(true)
	if i.MaxDeliveries > 0 && m.count+1 >= i.MaxDeliveries {
		i.dead++
		i.unacked--
		return
	}
	delay := max(0, i.Nack.Next(m.count))
	m.count++
	i.waiting++
	if i.RetryFrom > 0 && delay >= i.RetryFrom {
		i.unacked-- // it is another message now
		i.retry = i.now
		i.at(delay, retried, m, 0)
		return
	}
	i.at(delay, returns, m, i.number)
}

// back is a message whose delay is over: it is handled here, unless another instance may do better.
func (i *instance) back(m *message) {
	if i.seemsBroken() || i.MaxDeliveries > 0 && m.count+1 >= i.MaxDeliveries {
		i.unacked--
		i.at(request, replayed, m, 0)
		return
	}
	i.ready.push(m)
	i.take()
}

// report notes how a handler did, and reports whether its message stays where it is.
func (i *instance) report(m *message, failed, probe bool) (keep bool) {
	if i.Window == 0 {
		return false
	}
	if probe {
		i.probing = false
	}
	switch {
	case !i.outage:
		if failed && m.count > 0 { // it says more about the message
			return false
		}
		if i.recent = append(i.recent, failed); len(i.recent) > i.Window {
			i.recent = i.recent[1:]
		}
		if len(i.recent) < i.Window || float64(count(i.recent)) < i.Ratio*float64(i.Window) {
			return false
		}
		i.outage, i.tries, i.recent, i.probing = true, 0, nil, false
		i.era++
		for _, h := range i.held.all[i.held.head:] {
			h.tried = 0
		}
		m.tried = 0
		return failed
	case !failed:
		i.outage = false
		for i.held.len() > 0 {
			i.handle(i.held.pop(), fails)
		}
		return false
	case probe:
		i.tries++
		m.tried++
		if m.tried > 2 {
			m.tried = 0
			i.next()
			return false
		}
	}
	return true
}

// hold keeps a message in its place until it is its turn to be tried, or the outage is over.
func (i *instance) hold(m *message) {
	i.held.push(m)
	i.next()
}

// next begins the pause before the next try.
func (i *instance) next() {
	if i.outage && !i.probing && i.held.len() > 0 {
		i.probing = true
		i.seq++
		heap.Push(&i.events, event{at: i.now + max(0, i.Pause.Next(i.tries)), seq: i.seq, kind: probes, of: i.number, era: i.era})
	}
}

// probe tries the next message.
func (i *instance) probe(era int) {
	if era == i.era && i.outage {
		i.handle(i.held.pop(), probed)
	}
}
