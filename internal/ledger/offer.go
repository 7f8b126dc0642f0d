package ledger

import "math"

// offer is a message that the feeder of a channel offers to the application, which does not have it yet.
type offer struct {
	d         Delivery
	withdrawn chan struct{} // closed by whoever wants to know who has the message
	over      chan struct{} // closed by the feeder
	seen      chan struct{} // closed by the first of those who withdrew it, who has the lock then
	back      bool          // it was not sent, and is ready once whoever withdrew it looks at it
}

// Offer begins to offer a message on a channel: to be sent unless withdrawn is closed before. Offered must follow. Offer
// reports false if the application is not to have the message any more.
func (l *Ledger) Offer(d Delivery) (withdrawn <-chan struct{}, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, r := l.table.at(d.Ref)
	if !l.isCurrent(r, d) {
		return nil, false
	}
	if d.Hand > 0 && r.flags.has(doubtful) && !d.Doubtful { // since the feeder got it; what is new keeps its turn
		r.flags |= uncounted
		l.expect(d.Ref, e, r, lostTime)
		return nil, false
	}
	l.offer = &offer{d: d, withdrawn: make(chan struct{}), over: make(chan struct{}), seen: make(chan struct{})}
	return l.offer.withdrawn, true
}

// Offered ends what Offer began. A message that was not sent is offered again, unless it is settled first. If it was withdrawn, whoever did so has
// seen it when Offered returns, so that what is new keeps its turn.
func (l *Ledger) Offered(d Delivery, sent bool) {
	if seen := l.offered(d, sent); seen != nil {
		<-seen
	}
}

func (l *Ledger) offered(d Delivery, sent bool) (seen <-chan struct{}) {
	var w weight
	if !sent {
		w = l.weigh(d.Message)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.offer
	l.offer = nil
	defer close(o.over)
	e, r := l.table.at(d.Ref)
	if sent && l.o.Timed && l.isCurrent(r, d) {
		l.handed(l.table.timing(d.Ref, e))
	}
	if sent || !l.isCurrent(r, d) {
		return nil
	}
	if !r.isKept() { // the only one that is beyond the limit; Next lets go of it
		l.table.keepIn(math.MaxInt64, d.Ref, e, r, d.Message, w)
	}
	r.flags |= uncounted
	select {
	case <-o.withdrawn: // made ready now it could be offered again before they look at it
		o.back = true
		l.table.move(r, ready)
		return o.seen
	default:
		l.offerAgain(d.Ref, r)
		return nil
	}
}

// withdraw withdraws what is offered, if something is, and returns when it is known who has it. The caller holds mu, which is
// released meanwhile: only the feeder can tell. It may have begun another offer by then.
func (l *Ledger) withdraw() {
	o := l.offer
	if o == nil {
		return
	}
	select {
	case <-o.withdrawn:
	default:
		close(o.withdrawn)
	}
	l.mu.Unlock()
	<-o.over
	l.mu.Lock()
	if _, r := l.table.at(o.d.Ref); o.back && r != nil && r.state == ready {
		l.offerAgain(o.d.Ref, r)
		l.o.Calls.Wake()
	}
	if o.back {
		o.back = false
		close(o.seen)
	}
}

// find finds a message, of which it is known who has it. The caller holds mu, which may be released meanwhile.
func (l *Ledger) find(n Name) (Ref, *entry, *record) {
	for {
		ref, e, r := l.table.find(n)
		if r == nil || l.offer == nil || l.offer.d.Ref != ref {
			return ref, e, r
		}
		l.withdraw()
	}
}

// offerAgain has Next hand out what was not taken before anything else, so that what is new keeps its turn. The caller holds mu.
func (l *Ledger) offerAgain(ref Ref, r *record) {
	l.makeReady(ref, r)
	ready := l.table.ready
	copy(ready[1:], ready)
	ready[0] = ref
	l.table.offered = true
}

// offersUpTo reports whether a message of a stream is on offer that is not after an index of an entry. The caller holds mu.
func (l *Ledger) offersUpTo(s *stream, to entryID, index int32) bool {
	if l.offer == nil {
		return false
	}
	ref := l.offer.d.Ref
	e, r := l.table.at(ref)
	if r == nil || e.stream() != s {
		return false
	}
	key := l.table.entries.At(ref.slot()).Key
	return key.before(to) || key == to && ref.index() <= index
}
