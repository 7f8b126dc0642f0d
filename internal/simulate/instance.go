package simulate

import "github.com/pulsar-redelivery/redelivery/internal/outages"

// instance is a Consumer and its Worker.
type instance struct {
	*world
	number       int
	queue        fifo              // prefetched messages
	ready        fifo              // messages that waited here and are due
	idle         int               // free places for handlers
	lastWasReady bool              // the last message came from ready
	unacked      int               // unacknowledged messages, at the broker
	blocked      bool              // it has too many unacknowledged messages
	waits        map[*message]bool // messages that wait here for their delay

	last20 []bool // whether each of the last 20 messages failed

	downtime // its state in an outage
}

func newInstance(w *world, number int) *instance {
	return &instance{world: w, number: number, idle: w.Concurrency, waits: map[*message]bool{},
		downtime: downtime{outage: outages.New[*message](w.Window, w.Ratio)}}
}

// permits reports whether the broker may send a message. A consumer with too many unacknowledged messages is blocked
// until half of them are settled.
func (i *instance) permits() bool {
	switch {
	case i.MaxUnacked == 0:
	case i.unacked >= i.MaxUnacked:
		i.blocked = true
	case i.unacked < i.MaxUnacked/2:
		i.blocked = false
	}
	return !i.away && !i.blocked && i.queue.len() < i.Queue
}

// addUnacked adds to the number of unacknowledged messages.
func (i *instance) addUnacked(more int) {
	i.unacked += more
	i.allUnacked += more
}

// receive takes a message that the broker sends. If the message has waited in this instance, it continues to wait.
// Another instance does not know that the message waited, nor how often it failed.
func (i *instance) receive(m *message) {
	i.addUnacked(1)
	switch {
	case m.holder != i.number:
		m.holder, m.count, m.due = i.number, max(m.brokerCount, m.counts[i.number]), 0
	case m.due > i.now:
		i.wait(m)
		return
	}
	i.queue.push(m)
	i.take()
}

// next returns the next message, or nil if there is none. Redelivered and new messages take turns.
func (i *instance) next() *message {
	i.lastWasReady = i.queue.len() == 0 || i.ready.len() > 0 && !i.lastWasReady
	if i.lastWasReady {
		return i.ready.pop()
	}
	return i.queue.pop()
}

// take fills the free places with messages.
func (i *instance) take() {
	if i.isDown() {
		i.look()
		return
	}
	for i.idle > 0 {
		m := i.aside.pop()
		if m == nil {
			m = i.next()
		}
		if m == nil {
			return
		}
		i.handle(m, fails)
	}
}

// handle calls the handler. failure is the kind of the event if the handler fails.
func (i *instance) handle(m *message, failure kind) {
	i.idle--
	outcome := succeeds
	if i.beginCall() {
		outcome = failure
	}
	i.schedule(i.Handler, outcome, m, i.number)
}

// finish settles a message, or keeps it.
func (i *instance) finish(m *message, k kind) {
	i.idle++
	switch keep := i.report(m, k != succeeds, k == probeFails); {
	case keep:
		i.aside.push(m)
		m.kept = true
	case k == succeeds:
		i.addOutcome(false)
		i.handled++
		i.addUnacked(-1)
	default:
		i.nack(m)
	}
	i.giveBack()
	i.take()
}

// addOutcome records whether a message failed.
func (i *instance) addOutcome(failed bool) {
	i.last20 = append(i.last20, failed)
	if len(i.last20) > 20 {
		i.last20 = i.last20[1:]
	}
}

// remember keeps the count of a message that goes back to the broker, in case it comes here again.
func (i *instance) remember(m *message) {
	if m.counts == nil {
		m.counts = map[int]uint32{}
	}
	m.counts[i.number] = m.count
}

// seemsBroken reports whether the instance itself seems to be the cause of failures, by the same numbers as a Consumer
// (internal/partition/outcomes.go).
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
	i.addOutcome(true)
	if i.MaxDeliveries > 0 && m.count+1 >= i.MaxDeliveries {
		i.dead++
		i.addUnacked(-1)
		return
	}
	delay := i.bounded(i.Nack.Next(m.count))
	m.count++
	m.kept = false
	if i.RetryFrom > 0 && delay >= i.RetryFrom {
		i.waiting++
		i.addUnacked(-1) // the retry is another message
		i.lastRetry = i.now
		i.schedule(delay, retryDue, m, 0)
		return
	}
	m.due = i.now + delay
	i.wait(m)
}

// wait keeps a message until it is due.
func (i *instance) wait(m *message) {
	i.waiting++
	i.waits[m] = true
	i.schedule(m.due-i.now, delayEnds, m, i.number)
}

// delayOver handles a message whose delay is over. It ignores a message that was given back to the broker. If this
// instance seems broken, or the delivery is the message's last one, the broker sends the message again, perhaps to
// another instance.
func (i *instance) delayOver(m *message) {
	if !i.waits[m] || m.due > i.now {
		return
	}
	i.waiting--
	delete(i.waits, m)
	if i.seemsBroken() || i.MaxDeliveries > 0 && m.count+1 >= i.MaxDeliveries {
		i.addUnacked(-1)
		m.brokerCount++
		i.remember(m)
		i.schedule(request, sentAgain, m, 0)
		return
	}
	i.ready.push(m)
	i.take()
}
