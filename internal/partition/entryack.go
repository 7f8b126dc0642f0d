package partition

import "time"

// entryAck tracks the acknowledgement of one entry. Upstream counts the acknowledged messages of each delivery
// of an entry separately, and acknowledges the entry when one count is full. Acknowledgements of two
// deliveries do not add up. So the last acknowledgement of an entry that came more than once has to name the
// whole entry.
type entryAck struct {
	total    int32 // number of messages of the entry
	settled  int32 // number of settled messages
	last     int32 // index of the message that came last
	repeated bool  // the entry came more than once
	came     bool  // a message of the entry came

	settledAt time.Duration // when a message was last settled
	settledIn uint64        // the epoch in which a message was last settled
	epoch     uint64        // the epoch in which the copy that came last was sent
}

// copyCame notes that a copy of a message of the entry came. Each delivery brings messages in the order of their
// indexes, over one connection.
func (a *entryAck) copyCame(index int32, epoch uint64) {
	if a.came && (index <= a.last || epoch != a.epoch) {
		a.repeated = true
	}
	a.came, a.last, a.epoch = true, index, epoch
}

// isLast reports whether one more message completes the entry.
func (a *entryAck) isLast() bool { return a.settled+1 >= a.total }

// isComplete reports whether all messages of the entry are settled.
func (a *entryAck) isComplete() bool { return a.settled >= a.total }

// needsWhole reports whether the acknowledgement that completes the entry has to name the whole entry.
func (a *entryAck) needsWhole() bool { return a.repeated && a.total > 1 }
