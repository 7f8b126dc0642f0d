package attempts

import (
	"maps"
	"slices"
	"time"
)

// changes are the changes of this session that it has not read back from the topic yet.
type changes struct {
	byPlace map[place]*ownChange
	unsent  []place // changes to send, in order
	later   []place // removals that must not be sent yet, in the order of their times
	sent    []sent  // frames that were sent and not read back
	resets  bool    // the next frame removes all records first
	resetIn uint64  // number of the frame that removes all records, until it is read back; 0 for none
}

// sent describes a frame that was sent.
type sent struct {
	number uint64
	since  int64   // when it was sent
	places []place // of its changes
}

// ownChange is the pending change of one message.
type ownChange struct {
	record
	removed bool
	forgets bool          // Forget removes the earlier records: the change is written after a removal
	number  uint64        // of the frame that has the change; 0 if it was not sent
	queued  bool          // in unsent
	wasSent bool          // some change of the message was sent: the log may have a record
	since   int64         // all changes of the message before this time were read back
	from    int64         // when it may be sent; 0 for at once
	done    chan struct{} // closed when the change is written; nil if no caller waits
}

// put changes the record of a message.
func (c *changes) put(p place, r record) *ownChange {
	x := c.next(p)
	x.record, x.removed, x.from = r, false, 0
	c.enqueue(p, x)
	return x
}

// remove removes a message from the log. from is when the removal may be sent; 0 for at once, as Forget wants.
func (c *changes) remove(p place, r record, from int64) *ownChange {
	x := c.next(p)
	if from == 0 || x.forgets { // Forget waits for the removal
		x.forgets, from = true, 0
	}
	x.record, x.removed, x.from = r, true, from
	if from > 0 {
		if !x.queued { // if it is queued, gather postpones it
			c.later = append(c.later, p)
		}
		return x
	}
	c.enqueue(p, x)
	return x
}

// drop forgets the change of a message if no change of it was ever sent, and reports whether it did. So a settled
// message takes no memory while the log cannot be written.
func (c *changes) drop(p place) bool {
	x := c.byPlace[p]
	if x == nil || x.wasSent || x.forgets {
		return false
	}
	x.notifyWritten()
	delete(c.byPlace, p)
	if len(c.unsent) > 2*len(c.byPlace)+1000 {
		c.unsent = slices.DeleteFunc(c.unsent, func(p place) bool { return c.byPlace[p] == nil })
	}
	return true
}

// next returns the pending change of a message, and creates it if needed.
func (c *changes) next(p place) *ownChange {
	x := c.byPlace[p]
	if x == nil {
		x = &ownChange{since: now()}
		c.byPlace[p] = x
	}
	x.number = 0
	return x
}

func (c *changes) enqueue(p place, x *ownChange) {
	if !x.queued {
		x.queued = true
		c.unsent = append(c.unsent, p)
	}
}

// wait returns a channel that is closed when a change is written.
func (x *ownChange) wait() <-chan struct{} {
	if x.done == nil {
		x.done = make(chan struct{})
	}
	return x.done
}

// reset replaces all changes by the removal of all records.
func (c *changes) reset() {
	for _, x := range c.byPlace {
		x.notifyWritten()
	}
	*c = changes{byPlace: map[place]*ownChange{}, resets: true}
}

// unread reports whether a change that was made at limit or earlier may not be read back yet. Removals that must not be
// sent yet do not count.
func (c *changes) unread(limit int64) bool {
	for _, x := range c.byPlace {
		if x.from == 0 && x.since <= limit {
			return true
		}
	}
	return false
}

func (x *ownChange) notifyWritten() {
	if x.done != nil {
		close(x.done)
		x.done = nil
	}
}

// gather returns up to limit changes to send in the frame with the given number. next is when more can be sent; 0 if
// none are left. If all is set, it also returns removals whose time has not come.
func (c *changes) gather(number uint64, now int64, limit int, all bool) (places []place, next int64) {
	for len(c.later) > 0 {
		x := c.byPlace[c.later[0]]
		if x != nil && x.removed && x.from > now && x.number == 0 && !all {
			next = x.from
			break
		}
		if x != nil && x.removed && x.number == 0 {
			c.enqueue(c.later[0], x)
		}
		c.later = c.later[1:]
	}
	for len(c.unsent) > 0 && len(places) < limit {
		p := c.unsent[0]
		c.unsent = c.unsent[1:]
		x := c.byPlace[p]
		if x == nil || !x.queued {
			continue
		}
		x.queued = false
		if x.removed && x.from > now && !all { // the message was settled while its change was queued
			c.later = append(c.later, p)
			if next == 0 {
				next = x.from
			}
			continue
		}
		x.number, x.wasSent = number, true
		places = append(places, p)
	}
	if len(c.unsent) > 0 {
		next = now
	}
	if len(places) > 0 {
		c.sent = append(c.sent, sent{number, now, places})
	}
	return places, next
}

// vainTime limits how long the removal of a settled message is sent again while it is not read back.
const vainTime = time.Minute

// requeue queues all changes again that were not read back: the topic may be another one now. Of the sent frames it
// keeps the number and time of the oldest, for lag. It forgets messages that were settled long ago and are not among
// the known records. If it did not, the changes would grow while frames are sent but not read back.
func (c *changes) requeue(known map[place]record) {
	long := now() - vainTime.Milliseconds()
	maps.DeleteFunc(c.byPlace, func(p place, x *ownChange) bool {
		_, has := known[p]
		return x.removed && x.done == nil && max(x.since, x.from) < long && !has
	})
	if len(c.sent) > 0 {
		c.sent = []sent{{number: c.sent[0].number, since: c.sent[0].since}}
	}
	for p, x := range c.byPlace {
		if x.number > 0 {
			x.number = 0
			c.enqueue(p, x)
		}
	}
}

// echoed forgets the changes of frames up to a number: they were read back.
func (c *changes) echoed(number uint64) {
	if c.resetIn <= number {
		c.resetIn = 0
	}
	for len(c.sent) > 0 && c.sent[0].number <= number {
		for _, p := range c.sent[0].places {
			x := c.byPlace[p]
			switch {
			case x == nil:
			case x.number == c.sent[0].number:
				x.notifyWritten() // a frame may be read back before the broker has confirmed it
				delete(c.byPlace, p)
			default: // the message has changed since the frame was sent
				x.since = max(x.since, c.sent[0].since)
			}
		}
		c.sent = c.sent[1:]
	}
}

// lag returns the age of the oldest change that was not read back; 0 for none.
func (c *changes) lag(now int64) time.Duration {
	oldest := now + 1
	if len(c.sent) > 0 {
		oldest = c.sent[0].since
	}
	if len(c.unsent) > 0 {
		if x := c.byPlace[c.unsent[0]]; x != nil {
			oldest = min(oldest, max(x.since, x.from))
		}
	}
	if oldest > now {
		return 0
	}
	return time.Duration(now-oldest+1) * time.Millisecond
}
