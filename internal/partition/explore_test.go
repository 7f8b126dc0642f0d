package partition

import (
	"strings"
	"testing"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/exploretest"
)

func worldOf(k *kind) exploretest.World[*world, step] {
	x := encoder{sendings: map[*sending]int{}}
	return exploretest.World[*world, step]{
		New:      func() *world { return newWorld(k) },
		Steps:    (*world).steps,
		Do:       (*world).do,
		Check:    func(w *world) string { w.check(); return w.fault },
		Complete: func(w *world) string { w.complete(); return w.fault },
		Hash:     func(w *world) uint64 { return w.hash(&x) },
	}
}

// complete continues a world until nothing is in doubt: the other consumer closes, every call returns, the application
// settles each message that it gets, and each command reaches the broker. Then every message must be settled, and
// acknowledged at the broker.
func (w *world) complete() {
	w.kind = &kind{name: w.name, options: w.options, topics: w.kind.topics, sharedLedgers: w.sharedLedgers, brokerIndexAcks: w.brokerIndexAcks, window: 1 << 20,
		publishes: w.publishes, chunks: w.chunks, retries: w.retries, deaf: w.deaf}
	if w.offer != nil {
		w.takeOffer()
	}
	for t, topic := range w.topics {
		if topic.inactive {
			w.activate(t)
		}
		w.otherDies(t)
		for i, messages := range topic.messages {
			for _, m := range messages {
				if m.inTxn {
					m.inTxn = false
					topic.entries[i].owner = nobody
				}
			}
		}
	}
	w.act(w.g.Advance(w.now))
	for range 300 {
		w.flush()
		for len(w.ops) > 0 {
			if w.ops[0].inPipe {
				w.end(0, Failed)
			} else {
				w.end(0, Done)
			}
		}
		for t, topic := range w.topics {
			for w.next(t) >= 0 {
				w.send(t, w.next(t))
			}
			for e, messages := range topic.messages {
				for i, m := range messages {
					if m.held {
						w.begin(t, e, i)
						w.end(len(w.ops)-1, Done)
					}
				}
			}
		}
		for range 100 {
			if len(w.queue) == 0 && w.g.Stats().Ready == 0 {
				break
			}
			w.receive()
			w.act(w.g.Advance(w.now))
		}
		if w.check(); w.fault != "" {
			return
		}
		if w.isComplete() {
			break
		}
		w.receive()
		w.g.Connected()
		if len(w.pipe) == 0 && !w.anyHeld() {
			at, ok := w.g.NextTimer()
			if !ok {
				break
			}
			w.now = max(w.now, at)
		}
		w.act(w.g.Advance(w.now))
	}
	w.checkComplete()
}

func (w *world) anyHeld() bool {
	for _, topic := range w.topics {
		for _, messages := range topic.messages {
			for _, m := range messages {
				if m.held {
					return true
				}
			}
		}
	}
	return false
}

func (w *world) isComplete() bool {
	for _, topic := range w.topics {
		for _, e := range topic.entries {
			if !e.isAcked() {
				return false
			}
		}
	}
	return len(w.queue) == 0 && !w.anyHeld()
}

func (w *world) checkComplete() {
	for t, topic := range w.topics {
		for i, e := range topic.entries {
			for j, m := range topic.messages[i] {
				switch {
				case m.mustReturn:
					w.fail("%v was settled when an operator moved the cursor back, and did not come again", w.id(t, i, j))
				case e.isAcked():
				case m.settled:
					w.fail("%v is settled here and not at the broker", w.id(t, i, j))
				default:
					w.fail("%v is stuck", w.id(t, i, j))
				}
			}
		}
	}
}

// check checks the conditions that must hold between steps.
func (w *world) check() {
	g := w.g
	var memory int64
	for _, p := range g.partitions {
		var of [states]int
		for at, e := range p.entries {
			if e.at != at {
				w.fail("the table has entry %v at %v", e.at, at)
			}
			var states [states]int32
			var kept int32
			for _, m := range e.messages {
				if m == nil {
					continue
				}
				states[m.state]++
				of[m.state]++
				if m.body != nil {
					kept++
					memory += m.size
				}
				w.checkMessage(m)
			}
			if kept > 0 {
				memory += e.buffer
			}
			if states != e.in || kept != e.kept || states[Settled] != e.ack.settled && !e.ack.isComplete() {
				w.fail("%v counts %v %d %d, has %v %d", at, e.in, e.kept, e.ack.settled, states, kept)
			}
		}
		if of != p.in {
			w.fail("partition %s counts %v, has %v", p.topic, p.in, of)
		}
		if r := &p.request; g.o.rewinds() && p.in[Asked] > 0 && !r.timer.IsSet() {
			w.fail("no timer repeats the request of %s", p.topic)
		}
	}
	if memory != g.memory {
		w.fail("the group counts %d bytes, has %d", g.memory, memory)
	}
	if memory > g.o.MemoryLimit {
		w.fail("%d bytes are kept, the limit is %d", memory, g.o.MemoryLimit)
	}
	for i, t := range g.clock.Timers() {
		if !t.IsSet() || i > 0 && t.Before(g.clock.Timers()[(i+1)/2-1]) {
			w.fail("the clock is out of order")
		}
	}
}

// checkMessage checks that something will happen to a message.
func (w *world) checkMessage(m *message) {
	switch {
	case m.busy > 0:
	case m.state == Waiting && !m.timer.IsSet():
		w.fail("%v waits without a timer", m.entry.at)
	case m.state == Ready && (!m.queued || m.body == nil):
		w.fail("%v is ready, and Take does not find it", m.entry.at)
	case m.state == Asked && !w.g.o.rewinds() && !w.g.requestOf(m.entry).timer.IsSet():
		w.fail("%v is asked, and no timer repeats its request", m.entry.at)
	case m.timer.IsSet() && m.state == Asked:
		w.fail("%v has a timer and is asked", m.entry.at)
	}
}

func kinds() []*kind {
	of := func(k Kind) Options { return Options{Kind: k, MemoryLimit: 100} }
	room := func(o Options, bytes int64) Options { o.MemoryLimit = bytes; return o }
	indexAcks := func(o Options) Options { o.IndexAcks = KeptIndexAcks; return o }
	exclusive, failover, shared := of(Exclusive), of(Failover), of(Shared)
	one, two, three, batch := [][]int{{1}}, [][]int{{1, 1}}, [][]int{{1, 1, 1}}, [][]int{{2, 1}}
	uneven := [][]int{{1, 1}, {1}}
	lastOfTwo := func(o Options) Options { o.MaxDeliveries = 2; return o }
	deaf := func(o Options) Options { o.Deaf = true; return o }
	return []*kind{
		{name: "exclusive", options: exclusive, topics: three, window: 4, depth: 8},
		{name: "exclusive without memory", options: room(exclusive, 0), topics: three, window: 4, depth: 8},
		{name: "exclusive with memory for one", options: room(exclusive, 1), topics: three, window: 4, depth: 7},
		{name: "exclusive with batches", options: exclusive, topics: batch, window: 5, depth: 8},
		{name: "exclusive with cumulative acks", options: exclusive, topics: batch, window: 5, cumulative: true, depth: 7},
		{name: "exclusive with ack timeouts", options: exclusive, topics: two, window: 3, timeout: 2 * tick, depth: 8},
		{name: "exclusive with responses", options: exclusive, topics: two, window: 3, responses: true, depth: 8},
		{name: "exclusive with an operator", options: exclusive, topics: two, window: 3, resets: true, depth: 9, deepest: 12},
		{name: "exclusive with transactions", options: exclusive, topics: two, window: 3, transactions: true, depth: 8},
		{name: "exclusive with transactions and a queue that is cleared", options: exclusive, topics: two, window: 4, transactions: true, queueCleared: true, depth: 10, deepest: 11},
		{name: "exclusive with batches and a queue that is cleared", options: room(exclusive, 1), topics: batch, window: 5, queueCleared: true, depth: 8},
		{name: "two exclusive topics", options: room(exclusive, 1), topics: [][]int{{1, 1}, {1}}, window: 3, depth: 8},
		{name: "failover", options: failover, topics: two, window: 4, others: true, depth: 8},
		{name: "failover with batches", options: failover, topics: [][]int{{2}}, window: 5, others: true, depth: 8},
		{name: "failover with a queue that is cleared", options: failover, topics: two, window: 4, others: true, queueCleared: true, depth: 8},
		{name: "failover with transactions", options: failover, topics: two, window: 4, others: true, transactions: true, depth: 8},
		{name: "failover with transactions and a queue that is cleared", options: failover, topics: two, window: 4, others: true, transactions: true, queueCleared: true,
			depth: 8},
		{name: "shared with transactions", options: room(shared, 1), topics: two, window: 4, others: true, transactions: true, snoozes: true, depth: 8},
		{name: "failover with batches and a queue that is cleared", options: failover, topics: batch, window: 5, others: true, queueCleared: true, depth: 8},
		{name: "shared", options: shared, topics: two, window: 3, others: true, depth: 8, deepest: 11},
		{name: "shared without memory", options: room(shared, 0), topics: two, window: 3, others: true, depth: 8, deepest: 11},
		{name: "shared with batches", options: shared, topics: batch, window: 5, others: true, depth: 8},
		{name: "shared with batches and a queue that is cleared", options: shared, topics: batch, window: 4, queueCleared: true, depth: 8},
		{name: "shared with a queue that is cleared", options: shared, topics: two, window: 4, queueCleared: true, depth: 7},
		{name: "exclusive with a queue that is cleared", options: exclusive, topics: two, window: 4, queueCleared: true, depth: 10, deepest: 11},
		{name: "shared with index acks", options: indexAcks(shared), brokerIndexAcks: true, topics: [][]int{{3}}, window: 6, others: true, depth: 7},
		{name: "shared with index acks at the client", options: indexAcks(shared), topics: [][]int{{2}}, window: 4, others: true, depth: 8},
		{name: "shared with ack timeouts", options: shared, topics: two, window: 3, timeout: 2 * tick, depth: 8},
		{name: "shared with dead letters", options: lastOfTwo(shared), topics: one, window: 2, timeout: tick, others: true, depth: 9},
		{name: "shared with responses", options: shared, topics: [][]int{{2}}, window: 4, responses: true, depth: 8},
		{name: "shared with responses and no memory", options: room(shared, 0), topics: one, window: 2, responses: true, depth: 10},
		{name: "shared with chunks that are published", options: shared, topics: one, window: 2, others: true, responses: true, publishes: true,
			chunks: true, depth: 9},
		{name: "shared with chunks and a queue that is cleared", options: room(shared, 1), topics: two, window: 4, responses: true, chunks: true, queueCleared: true,
			depth: 8},
		{name: "exclusive with transactions, responses and a queue that is cleared", options: exclusive, topics: two, window: 4, transactions: true, responses: true,
			queueCleared: true, depth: 8},
		{name: "exclusive with dead letters that are published", options: lastOfTwo(exclusive), topics: two, window: 4, timeout: tick, responses: true,
			publishes: true, depth: 7},
		{name: "shared with transactions and a queue that is cleared", options: shared, topics: two, window: 4, transactions: true, queueCleared: true, depth: 8},
		{name: "shared with a TTL", options: shared, topics: two, window: 4, others: true, expires: true, depth: 8},
		{name: "exclusive with a TTL", options: exclusive, topics: two, window: 4, expires: true, depth: 8},
		{name: "exclusive with a TTL and a queue that is cleared", options: exclusive, topics: two, window: 4, expires: true, queueCleared: true, depth: 8},
		{name: "failover with a TTL", options: room(failover, 1), topics: two, window: 4, others: true, expires: true, depth: 8},
		{name: "shared with an operator", options: shared, topics: batch, window: 4, resets: true, depth: 9},
		{name: "shared with snoozes", options: shared, topics: one, window: 2, others: true, snoozes: true, depth: 9},
		{name: "two shared topics", options: shared, topics: [][]int{{1}, {1}}, window: 3, others: true, depth: 8},
		{name: "a shadow topic", options: shared, topics: [][]int{{1}, {1}}, window: 3, sharedLedgers: true, byID: true, depth: 7},
		{name: "shared with a channel", options: shared, topics: two, window: 3, others: true, channel: true, depth: 8},
		{name: "exclusive with a channel", options: exclusive, topics: two, window: 3, channel: true, cumulative: true, depth: 8},
		{name: "exclusive with a channel and no memory", options: room(exclusive, 0), topics: two, window: 3, channel: true, responses: true, depth: 8},
		{name: "failover with a channel", options: failover, topics: two, window: 4, others: true, channel: true, timeout: 2 * tick, depth: 8},
		{name: "shared with reclaimed messages", options: shared, topics: batch, window: 4, others: true, reclaims: true, depth: 7},
		{name: "failover with reclaimed messages", options: failover, topics: two, window: 4, others: true, reclaims: true, responses: true, depth: 8},
		{name: "key-shared with reclaimed messages and a queue that is cleared", options: of(KeyShared), topics: two, window: 4, reclaims: true, queueCleared: true,
			depth: 7},
		{name: "shared with reclaimed messages and ack timeouts", options: lastOfTwo(shared), topics: two, window: 4, others: true, reclaims: true, snoozes: true,
			timeout: 2 * tick, depth: 7},
		{name: "shared that gives back", options: shared, topics: two, window: 4, others: true, givesBack: true, redelivers: true, depth: 8},
		{name: "shared with batches that gives back", options: shared, topics: batch, window: 4, others: true, givesBack: true, depth: 7},
		{name: "key-shared that gives back without memory", options: room(of(KeyShared), 0), topics: two, window: 4, others: true, givesBack: true,
			timeout: 2 * tick, depth: 8},
		{name: "shared that gives back on a channel", options: room(shared, 1), topics: two, window: 4, others: true, givesBack: true, channel: true, depth: 8},
		{name: "shared with whole acks and a queue that is cleared", options: shared, topics: batch, window: 5, wholeAcks: true, queueCleared: true, depth: 7},
		{name: "shared with whole acks", options: shared, topics: batch, window: 5, others: true, wholeAcks: true, depth: 8},
		{name: "shared with index acks and whole acks", options: indexAcks(shared), brokerIndexAcks: true, topics: batch, window: 5, others: true, wholeAcks: true, depth: 7},
		{name: "exclusive with whole acks", options: exclusive, topics: batch, window: 5, wholeAcks: true, responses: true, depth: 7},
		{name: "shared with retries", options: shared, topics: two, window: 3, others: true, retries: true, depth: 8},
		{name: "shared with retries and no memory", options: room(shared, 0), topics: two, window: 3, others: true, retries: true, redelivers: true, depth: 8},
		{name: "exclusive with retries", options: room(exclusive, 1), topics: two, window: 3, retries: true, depth: 8},
		{name: "wrapped shared", options: deaf(shared), topics: batch, window: 5, others: true, deaf: true, depth: 8},
		{name: "shared with batches of retries", options: room(shared, 2), topics: batch, window: 5, others: true, retries: true, responses: true, depth: 7},
		{name: "failover with retries", options: failover, topics: two, window: 4, others: true, retries: true, snoozes: true, depth: 7},
		{name: "wrapped shared without memory", options: room(deaf(shared), 0), topics: two, window: 5, others: true, deaf: true, responses: true, depth: 8},
		{name: "wrapped shared on a channel", options: deaf(shared), topics: two, window: 5, others: true, deaf: true, channel: true, timeout: 2 * tick, depth: 8},
		{name: "wrapped exclusive", options: deaf(exclusive), topics: two, window: 4, deaf: true, depth: 8},
		{name: "key-shared", options: of(KeyShared), topics: two, window: 3, others: true, depth: 7},
		{name: "two exclusive topics and a queue that is cleared", options: exclusive, topics: uneven, window: 4, queueCleared: true, depth: 7},
		{name: "two failover topics and a queue that is cleared", options: failover, topics: uneven, window: 4, others: true, queueCleared: true, depth: 6},
		{name: "two shared topics and a queue that is cleared", options: shared, topics: uneven, window: 3, queueCleared: true, depth: 7},
		{name: "two shared topics that give back, and a queue that is cleared", options: shared, topics: uneven, window: 3, givesBack: true,
			queueCleared: true, depth: 7},
		{name: "two exclusive topics with an operator", options: exclusive, topics: uneven, window: 3, resets: true, queueCleared: true, depth: 7},
		{name: "exclusive with a message that is not announced", options: exclusive, topics: two, window: 4, queueCleared: true, unannounced: true, depth: 8},
		{name: "shared with a message that is not announced", options: shared, topics: two, window: 4, queueCleared: true, unannounced: true, depth: 7},
		{name: "wrapped shared with a message that is not announced", options: deaf(shared), topics: two, window: 4, others: true, deaf: true, unannounced: true,
			depth: 7},
	}
}

func TestExploration(t *testing.T) {
	for _, k := range kinds() {
		t.Run(strings.ReplaceAll(k.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			depth, began := exploretest.Depth(k.depth), time.Now()
			if k.deepest > 0 {
				depth = min(depth, k.deepest)
			}
			x := exploretest.Explore(worldOf(k), nil, depth)
			if x.Found != nil {
				t.Fatal(x)
			}
			t.Logf("depth %d: %d states in %v", depth, x.States, time.Since(began).Round(time.Millisecond))
		})
	}
}
