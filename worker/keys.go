package worker

import (
	"cmp"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// keys keeps the messages of each key in order. One message of a key is out at a time: a slot has it. The others wait
// in the key's lane. A message that waits for its next try is in the lane, too. keys takes no lock and starts no
// goroutine.
type keys struct {
	lanes   map[laneKey]*lane
	ready   []*lane // lanes whose first messages may be taken
	waiting int     // messages in all lanes
}

// lane has the waiting messages of a key.
type lane struct {
	key   laneKey
	queue []task      // in order, without the message that is out
	timer *time.Timer // when it fires, the first message may be taken; nil if it need not wait
}

// laneKey is a key of a topic. All partitions of a topic are one topic here, since a change of their number moves keys
// between them.
type laneKey struct{ topic, key string }

// keyOf returns the key by which Key_Shared distributes messages; "" for none.
func keyOf(msg pulsar.Message) string { return cmp.Or(msg.OrderingKey(), msg.Key()) }

// enter adds a message that was received. It reports true if the message is out now: it has no key, or no other message
// of its key is here. Otherwise the message waits.
func (k *keys) enter(t *task) (out bool) {
	key := laneKey{topicname.Base(t.msg.Topic()), keyOf(t.msg)}
	if key.key == "" {
		return true
	}
	t.lane = k.lanes[key]
	if t.lane == nil {
		t.lane = &lane{key: key}
		k.lanes[key] = t.lane
		return true
	}
	k.waiting++
	t.lane.add(*t)
	return false
}

// putBack inserts a message that was out into its lane again, behind those that precede it in its partition.
func (k *keys) putBack(t task) {
	k.waiting++
	of, at := t.lane, 0
	for at < len(of.queue) && comesBefore(of.queue[at].msg, t.msg) {
		at++
	}
	of.queue = slices.Insert(of.queue, at, t)
}

// release notes that no message of a lane is out any more. It reports whether one of its messages may be taken now.
func (k *keys) release(of *lane) (ready bool) {
	if len(of.queue) == 0 {
		delete(k.lanes, of.key)
		return false
	}
	k.ready = append(k.ready, of)
	return true
}

// take takes the first message out of the lane that has been ready for longest.
func (k *keys) take() task {
	of := k.ready[0]
	k.ready[0] = nil
	k.ready = k.ready[1:]
	t := of.queue[0]
	of.queue[0] = task{}
	of.queue = of.queue[1:]
	k.waiting--
	return t
}

// drop removes the messages gone from a lane. gone is in the order of the queue.
func (k *keys) drop(of *lane, gone []task) {
	next := 0
	of.queue = slices.DeleteFunc(of.queue, func(t task) bool {
		isGone := next < len(gone) && gone[next].msg == t.msg
		if isGone {
			next++
		}
		return isGone
	})
	k.waiting -= next
}

// clear takes all messages out.
func (k *keys) clear() (all []task) {
	for _, of := range k.lanes {
		all = append(all, of.queue...)
		of.queue = nil
		if of.timer != nil {
			of.timer.Stop()
		}
	}
	k.ready, k.waiting = nil, 0
	return all
}

// add puts a message in its place in the queue: a lost message that comes again may precede messages that are there
// already.
func (of *lane) add(t task) {
	at := len(of.queue)
	for at > 0 && comesBefore(t.msg, of.queue[at-1].msg) {
		at--
	}
	of.queue = slices.Insert(of.queue, at, t)
}

// comesBefore reports whether a message is before another of its partition.
func comesBefore(msg, other pulsar.Message) bool {
	a, b := msg.ID(), other.ID()
	return cmp.Or(cmp.Compare(a.LedgerID(), b.LedgerID()), cmp.Compare(a.EntryID(), b.EntryID()),
		cmp.Compare(a.BatchIdx(), b.BatchIdx())) < 0 && msg.Topic() == other.Topic()
}
