package pulsartest

import (
	"math"
	"sort"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// topic is a log of entries with its producers and subscriptions. Inside the broker, the offset in the log, from 0,
// identifies an entry. Nothing is ever removed from the log. Server.mu guards the topic.
type topic struct {
	server     *Server
	name       topicName
	log        []*entry
	ledger     uint64 // of the next entry
	nextID     uint64
	terminated bool
	subs       map[string]*subscription
	producers  map[string]*producer
	waiting    []*producer // producers that wait for exclusive access, in order
	epoch      int64       // of exclusive access, -1 before the first
	bytes      int         // of the log
	loaded     int         // the first offset since the last unload
}

func newTopic(s *Server, name topicName) *topic {
	t := &topic{
		server:    s,
		name:      name,
		subs:      map[string]*subscription{},
		producers: map[string]*producer{},
		epoch:     -1,
	}
	t.newLedger()
	return t
}

// newLedger starts a ledger, as the real broker does when it loads a topic.
func (t *topic) newLedger() {
	t.ledger, t.nextID = t.server.nextLedger, 0
	t.server.nextLedger++
}

// append stores e. The caller then confirms e to its producer and calls deliver, in the order of a real broker.
func (t *topic) append(e *entry) {
	if !t.name.persistent() {
		return
	}
	e.ledger, e.id = t.ledger, t.nextID
	t.nextID++
	t.log = append(t.log, e)
	t.bytes += len(e.data)
}

func (t *topic) deliver(e *entry) {
	for _, sub := range t.subs {
		if t.name.persistent() {
			sub.dispatch()
		} else {
			sub.pass(e)
		}
	}
}

// beforeFirst is entry -1, the position before a ledger's first entry. A client without batch-index acknowledgement
// sends it in a cumulative acknowledgement of a message in the middle of the ledger's first batch.
const beforeFirst = math.MaxUint64

// find returns the offset of the first entry at or after (ledger, id), and whether that entry is at (ledger, id).
func (t *topic) find(ledger, id uint64) (int, bool) {
	i := sort.Search(len(t.log), func(i int) bool { return !t.log[i].before(ledger, id) })
	return i, i < len(t.log) && t.log[i].ledger == ledger && t.log[i].id == id
}

// findTime returns the offset after the last entry that was published before ms.
func (t *topic) findTime(ms uint64) int {
	for i := len(t.log); i > 0; i-- {
		if t.log[i-1].publishTime < ms {
			return i
		}
	}
	return 0
}

// last returns the position of the newest entry, as GET_LAST_MESSAGE_ID answers it.
func (t *topic) last() *wire.MessageID {
	if len(t.log) == 0 {
		return &wire.MessageID{Ledger: math.MaxUint64, Entry: math.MaxUint64, Partition: t.name.partition,
			BatchIndex: -1}
	}
	e := t.log[len(t.log)-1]
	id := &wire.MessageID{Ledger: e.ledger, Entry: e.id, Partition: t.name.partition, BatchIndex: -1}
	if e.batch {
		id.BatchIndex = int32(e.messages - 1)
	}
	return id
}

// unload closes all producers and consumers and resets the counters. Acknowledged entries stay acknowledged.
func (t *topic) unload() {
	t.closeProducers()
	for name, sub := range t.subs {
		sub.closeConsumers(nil)
		sub.cursor.forgetIndexes()
		sub.gone, sub.used, sub.turn = traffic{}, false, 0
		if !sub.durable {
			delete(t.subs, name)
		}
	}
	t.loaded = len(t.log)
	t.newLedger()
}

// terminate refuses all later messages.
func (t *topic) terminate() {
	t.terminated = true
	t.closeProducers()
	for _, sub := range t.subs {
		sub.dispatch()
	}
}

// delete removes the topic with its subscriptions, consumers and producers.
func (t *topic) delete() {
	for _, sub := range t.subs {
		sub.closeConsumers(nil)
	}
	t.closeProducers()
	t.stop()
	delete(t.server.topics, t.name)
}

// unackedLimits returns how many unacknowledged messages a consumer and a subscription may have; 0 means no limit.
func (t *topic) unackedLimits() (consumer, subscription int) {
	limits := t.server.limits[t.name.base()]
	return limits.consumer.or(t.server.maxUnackedConsumer), limits.subscription.or(t.server.maxUnackedSub)
}

// stop stops the timers.
func (t *topic) stop() {
	for _, sub := range t.subs {
		sub.stop()
	}
}

// subscription returns the subscription of a name, and creates it at position if needed.
func (t *topic) subscription(name string, position wire.InitialPosition) *subscription {
	if sub, ok := t.subs[name]; ok {
		return sub
	}
	start := len(t.log)
	if position == wire.Earliest {
		start = 0
	}
	sub := newSubscription(t, name, true, start)
	t.subs[name] = sub
	return sub
}
