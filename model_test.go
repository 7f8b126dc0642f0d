package redelivery_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
)

// modelBroker is a subscription and the consumer that upstream would make of it, reduced to what matters to redelivery:
// batches whose acknowledgements add up per delivery, requests that go out with a tick, deliveries that survive in a
// channel, and a connection that breaks.
type modelBroker struct {
	pulsar.Consumer
	ch        chan pulsar.ConsumerMessage
	rewinds   bool
	indexAcks bool
	rng       *rand.Rand

	mu       sync.Mutex
	entries  []*modelEntry
	queue    []pulsar.ConsumerMessage
	more     chan struct{}
	stop     chan struct{}
	requests []*modelEntry
	failAcks bool
	sent     int          // requests
	clock    atomic.Int64 // of deliveries
}

type modelEntry struct {
	id      int64
	acked   []bool // of each message, where index acks are on; of the whole entry, in all
	done    bool
	pending bool // delivered over the present connection
	count   uint32
}

// modelID is one delivery of one message.
type modelID struct {
	pulsar.MessageID
	entry *modelEntry
	index int
	acked []bool // shared by the messages of the delivery
	sent  int64  // when, by the broker's clock
}

func (b *modelBroker) Name() string                        { return "model" }
func (b *modelBroker) Subscription() string                { return sub }
func (b *modelBroker) Chan() <-chan pulsar.ConsumerMessage { return b.ch }
func (b *modelBroker) Close()                              { close(b.stop) }

func (b *modelBroker) Receive(ctx context.Context) (pulsar.Message, error) {
	select {
	case <-b.stop:
		return nil, errFakeClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

var errModelAck = errors.New("model: this ack fails")

func (b *modelBroker) AckID(id pulsar.MessageID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failAcks {
		return errModelAck
	}
	m := id.(*modelID)
	m.acked[m.index] = true
	bits := m.acked
	if b.indexAcks {
		m.entry.acked[m.index] = true
		bits = m.entry.acked
	}
	for _, acked := range bits {
		if !acked {
			return nil
		}
	}
	m.entry.done = true
	return nil
}

func (b *modelBroker) AckIDCumulative(id pulsar.MessageID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := id.(*modelID)
	for _, e := range b.entries[:m.entry.id] {
		e.done = true
	}
	bits := m.acked
	if b.indexAcks {
		bits = m.entry.acked
	}
	for i := range m.index + 1 {
		bits[i] = true
	}
	m.entry.done = m.entry.done || !slices.Contains(bits, false)
	return nil
}

func (b *modelBroker) NackID(id pulsar.MessageID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests = append(b.requests, id.(*modelID).entry)
	b.sent++
}

func (b *modelBroker) Seek(pulsar.MessageID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.entries {
		e.done, e.acked = false, make([]bool, len(e.acked))
	}
	for len(b.ch) > 0 {
		<-b.ch
	}
	b.drop()
	return nil
}

// run is upstream's dispatcher.
func (b *modelBroker) run() {
	for {
		b.mu.Lock()
		var next chan pulsar.ConsumerMessage
		var cm pulsar.ConsumerMessage
		if len(b.queue) > 0 {
			next, cm = b.ch, b.queue[0]
		}
		b.mu.Unlock()
		select {
		case next <- cm:
			b.mu.Lock()
			if len(b.queue) > 0 && b.queue[0] == cm {
				b.queue = b.queue[1:]
			}
			b.mu.Unlock()
		case <-b.more:
		case <-b.stop:
			return
		}
	}
}

func (b *modelBroker) signal() {
	select {
	case b.more <- struct{}{}:
	default:
	}
}

// tick is upstream's nack tracker.
func (b *modelBroker) tick() {
	for {
		select {
		case <-time.After(ms(10)):
		case <-b.stop:
			return
		}
		b.mu.Lock()
		requests := b.requests
		b.requests = nil
		if b.rewinds && len(requests) > 0 {
			b.deliverAll()
		} else {
			asked := map[*modelEntry]bool{}
			for _, e := range requests {
				if e.pending && !e.done && !asked[e] {
					asked[e] = true
					e.count++
					b.deliver(e)
				}
			}
		}
		b.mu.Unlock()
	}
}

func (b *modelBroker) publish(size int) *modelEntry {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := &modelEntry{id: int64(len(b.entries)), acked: make([]bool, size)}
	b.entries = append(b.entries, e)
	b.deliver(e)
	return e
}

func (b *modelBroker) deliver(e *modelEntry) {
	e.pending = true
	delivery := make([]bool, len(e.acked))
	sent := b.clock.Add(1)
	for i := range e.acked {
		if b.indexAcks && e.acked[i] {
			delivery[i] = true
			continue
		}
		id := &modelID{&modelIDs{7, e.id, int32(i), int32(len(e.acked))}, e, i, delivery, sent}
		b.queue = append(b.queue, pulsar.ConsumerMessage{Consumer: b, Message: message{id: id, count: e.count, topic: "model"}})
	}
	b.signal()
}

func (b *modelBroker) deliverAll() {
	for _, e := range b.entries {
		if !e.done {
			b.deliver(e)
		}
	}
}

// drop loses the connection: what is prefetched is gone but for what the channel holds, requests are lost, counts begin
// anew, and everything unacknowledged is delivered again.
func (b *modelBroker) drop() {
	b.queue, b.requests = nil, nil
	for _, e := range b.entries {
		e.count, e.pending = 0, false
	}
	b.deliverAll()
}

func (b *modelBroker) open() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.entries {
		if !e.done {
			n++
		}
	}
	return n
}

// modelIDs are the numbers of a message id.
type modelIDs struct {
	ledger, entry int64
	index, size   int32
}

func (id *modelIDs) Serialize() []byte   { return nil }
func (id *modelIDs) LedgerID() int64     { return id.ledger }
func (id *modelIDs) EntryID() int64      { return id.entry }
func (id *modelIDs) BatchIdx() int32     { return id.index }
func (id *modelIDs) BatchSize() int32    { return id.size }
func (id *modelIDs) PartitionIdx() int32 { return 0 }
func (id *modelIDs) String() string      { return fmt.Sprintf("%d:%d", id.entry, id.index) }

// modelMessage is what the application may expect of one message.
type modelMessage struct {
	held, settled bool
	again         bool      // it was settled, and handed out once more
	due           time.Time // if it waits
	timeout       time.Time // if it is held and there is an ack timeout
	count         uint32    // of the next hand-over
	msg           pulsar.Message
	old           []pulsar.Message
	settledAt     time.Time
	settledClock  int64
}

// mayComeAgain tells whether a settled message may be handed out once more. An entry of which nothing was nacked is
// forgotten as soon as all is settled, another after a while, and then a copy that was on its way already is new.
func (r *modelRun) mayComeAgain(id *modelID) bool {
	for i := range id.entry.acked {
		m := r.known[modelIDs{7, id.entry.id, int32(i), int32(len(id.entry.acked))}]
		if m != nil && m.again {
			return true
		}
		if m == nil || !m.settled {
			return false
		}
		if m.count > 0 && time.Since(m.settledAt) < 10*time.Second {
			return false
		}
		if id.sent <= m.settledClock {
			return true
		}
	}
	return false
}

// modelRun is one application at work.
type modelRun struct {
	t      *testing.T
	rng    *rand.Rand
	b      *modelBroker
	c      *redelivery.Consumer
	policy backoff.RedeliveryBackoff
	times  bool // there is an ack timeout
	known  map[modelIDs]*modelMessage
	order  []*modelMessage
	start  time.Time
	trace  []string
}

// note keeps what happened, to be shown if the run fails.
func (r *modelRun) note(format string, args ...any) {
	r.trace = append(r.trace, fmt.Sprintf("%8v ", time.Since(r.start).Truncate(time.Millisecond))+fmt.Sprintf(format, args...))
}

func (r *modelRun) of(msg pulsar.Message) *modelMessage {
	key := *msg.ID().(*modelID).MessageID.(*modelIDs)
	m := r.known[key]
	if m == nil {
		m = &modelMessage{}
		r.known[key] = m
		r.order = append(r.order, m)
	}
	return m
}

// pick returns a random message for which ok holds.
func (r *modelRun) pick(ok func(*modelMessage) bool) *modelMessage {
	for range 10 {
		if len(r.order) == 0 {
			break
		}
		if m := r.order[r.rng.IntN(len(r.order))]; ok(m) {
			return m
		}
	}
	return nil
}

func (r *modelRun) receive() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	msg, err := r.c.Receive(ctx)
	if err != nil {
		require.ErrorIs(r.t, err, context.DeadlineExceeded)
		return false
	}
	m := r.of(msg)
	r.expire(m)
	id := msg.ID().(*modelID)
	r.note("receives %v, sent as %d", id, id.sent)
	if m.settled && r.mayComeAgain(id) {
		*m = modelMessage{count: msg.RedeliveryCount(), again: true}
	}
	require.False(r.t, m.settled, "%v was settled and came back", id)
	require.False(r.t, m.held, "%v is with the application and came again", id)
	require.False(r.t, time.Now().Before(m.due), "%v is early by %v", id, time.Until(m.due))
	require.Equal(r.t, m.count, r.c.RedeliveryCount(msg), "count of %v", id)
	if m.msg != nil {
		m.old = append(m.old, m.msg)
	}
	m.held, m.due, m.msg = true, time.Time{}, msg
	r.startTimeout(m)
	return true
}

const modelTimeout = 700 * time.Millisecond

func (r *modelRun) startTimeout(m *modelMessage) {
	m.timeout = time.Now().Add(modelTimeout + r.policy.Next(m.count))
}

// expire notes that the application has had m for too long.
func (r *modelRun) expire(m *modelMessage) {
	if r.times && m.held && !time.Now().Before(m.timeout) {
		m.held, m.due = false, m.timeout
		m.count++
	}
}

func (r *modelRun) nack(m *modelMessage) {
	if r.expire(m); !m.held {
		r.c.Nack(m.msg) // too late
		return
	}
	d := r.policy.Next(m.count)
	r.note("nacks %v", m.msg.ID())
	switch r.rng.IntN(3) {
	case 0:
		d = ms(r.rng.IntN(3000) - 500)
		require.NoError(r.t, r.c.NackWithDelay(m.msg, d))
	case 1:
		r.c.NackID(m.msg.ID())
	default:
		r.c.Nack(m.msg)
	}
	m.held, m.due = false, time.Now().Add(max(0, d))
	m.count++
}

func (r *modelRun) ack(m *modelMessage) {
	msg := m.msg
	if len(m.old) > 0 && r.rng.IntN(3) == 0 {
		msg = m.old[r.rng.IntN(len(m.old))] // of an earlier delivery: it counts
	}
	r.b.failAcks = r.rng.IntN(10) == 0
	err := r.c.Ack(msg)
	if r.b.failAcks {
		require.ErrorIs(r.t, err, errModelAck)
	} else {
		require.NoError(r.t, err)
		r.settled(m)
	}
	r.b.failAcks = false
}

// ackCumulative acknowledges everything up to m, unless there is something of it that the application never had.
func (r *modelRun) ackCumulative(m *modelMessage) {
	id := m.msg.ID().(*modelID)
	var upTo []*modelMessage
	for _, e := range r.b.entries[:id.entry.id+1] {
		for i := range e.acked {
			if e == id.entry && i > id.index {
				break
			}
			known := r.known[modelIDs{7, e.id, int32(i), int32(len(e.acked))}]
			if known == nil {
				return
			}
			upTo = append(upTo, known)
		}
	}
	require.NoError(r.t, r.c.AckCumulative(m.msg))
	for _, m := range upTo {
		if !m.settled {
			r.settled(m)
		}
	}
}

func (r *modelRun) settled(m *modelMessage) {
	r.note("settled %v at %d", m.msg.ID(), r.b.clock.Load())
	m.held, m.settled, m.settledAt, m.settledClock = false, true, time.Now(), r.b.clock.Load()
}

func (r *modelRun) step() {
	n := r.rng.IntN(100)
	if n >= 94 {
		r.note("drop, unload, rewind or seek: %d, at %d", n, r.b.clock.Load())
	}
	switch {
	case n < 8:
		size := 1
		if r.rng.IntN(2) == 0 {
			size = 1 + r.rng.IntN(6)
		}
		if r.b.open() < 30 {
			r.b.publish(size)
		}
	case n < 45:
		r.receive()
	case n < 62:
		if m := r.pick(func(m *modelMessage) bool { return m.held }); m != nil {
			r.nack(m)
		}
	case n < 66: // nothing of this changes anything
		if m := r.pick(func(m *modelMessage) bool { return m.msg != nil && !m.held }); m != nil {
			r.c.Nack(m.msg)
		}
		if m := r.pick(func(m *modelMessage) bool { return len(m.old) > 0 }); m != nil {
			r.c.Nack(m.old[r.rng.IntN(len(m.old))])
		}
	case n < 68:
		if m := r.pick(func(m *modelMessage) bool { return m.msg != nil }); r.times && m != nil {
			if r.expire(m); m.held {
				require.NoError(r.t, r.c.InProgress(m.msg))
				r.startTimeout(m)
			} else {
				require.ErrorIs(r.t, r.c.InProgress(m.msg), redelivery.ErrNotHeld)
			}
		}
	case n < 80:
		if m := r.pick(func(m *modelMessage) bool { return m.msg != nil && !m.settled }); m != nil {
			if r.b.rewinds && r.rng.IntN(10) == 0 {
				r.ackCumulative(m)
			} else {
				r.ack(m)
			}
		}
	case n < 94:
		time.Sleep(ms(r.rng.IntN(400)))
	case n < 96:
		r.b.mu.Lock()
		r.b.drop()
		r.b.mu.Unlock()
	case n < 97: // an unload takes a while
		r.b.mu.Lock()
		r.b.drop()
		r.b.queue = nil
		r.b.mu.Unlock()
		time.Sleep(ms(100))
		r.b.mu.Lock()
		r.b.drop()
		r.b.mu.Unlock()
	case n < 99: // a rewind that nobody here asked for
		r.b.mu.Lock()
		if r.b.rewinds {
			r.b.deliverAll()
		}
		r.b.mu.Unlock()
	default:
		if r.rng.IntN(10) == 0 {
			require.NoError(r.t, r.c.Seek(pulsar.EarliestMessageID()))
			r.known, r.order = map[modelIDs]*modelMessage{}, nil
		}
	}
	synctest.Wait()
}

// drain receives and acknowledges until nothing is left.
func (r *modelRun) drain() {
	start := time.Now()
	r.note("drain")
	quiet := 0
	for time.Since(start) < 10*time.Second { // delays are up to 2.5 s
		if quiet++; r.receive() {
			quiet = 0
		}
		for _, m := range r.order {
			if m.held {
				require.NoError(r.t, r.c.Ack(m.msg))
				r.settled(m)
			}
		}
		if quiet > 0 && r.b.open() == 0 {
			break
		}
		if quiet > 0 {
			time.Sleep(ms(50))
		}
		synctest.Wait()
	}
	require.Zero(r.t, r.b.open(), "entries are not acknowledged in time: %+v", r.c.Stats())
	time.Sleep(time.Minute)
	require.False(r.t, r.receive(), "something came although all is settled")
	time.Sleep(20 * time.Minute) // what the broker knows as acknowledged is asked for in vain, and forgotten
	for _, m := range r.order {
		require.True(r.t, m.settled || m.again)
	}
	require.Equal(r.t, 0, r.c.Stats().Waiting)
	require.Zero(r.t, r.c.Stats().HeldBytes)
}

// Random operations of an application, a broker and a network, against what the application may see and when. A failing
// run names its seed.
func TestModel(t *testing.T) {
	const steps = 2500 // for each of four
	for _, rewinds := range []bool{false, true} {
		for _, indexAcks := range []bool{false, true} {
			seed := rand.Uint64()
			t.Run(fmt.Sprintf("rewinds=%t index=%t seed=%d", rewinds, indexAcks, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { runModel(t, rewinds, indexAcks, seed, steps) })
			})
		}
	}
}

func runModel(t *testing.T, rewinds, indexAcks bool, seed uint64, steps int) {
	opts := pulsar.ConsumerOptions{Type: pulsar.Shared}
	if rewinds {
		opts.Type = pulsar.Exclusive
	}
	policy := backoff.Exponential{Min: ms(100), Max: ms(2000), Multiplier: 2}
	rng := rand.New(rand.NewPCG(seed, 0))
	options := []redelivery.Option{redelivery.WithNackRedeliveryBackoff(policy),
		redelivery.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))}
	if rng.IntN(3) == 0 {
		options = append(options, redelivery.WithHoldLimit(3000)) // five copies
	}
	times := rng.IntN(2) == 0
	if times {
		options = append(options, redelivery.WithAckTimeout(modelTimeout), redelivery.WithAckTimeoutRedeliveryBackoff(policy))
	}
	prepared, err := redelivery.Prepare(opts, options...)
	require.NoError(t, err)
	b := &modelBroker{ch: prepared.MessageChannel, rewinds: rewinds, indexAcks: indexAcks, rng: rng,
		more: make(chan struct{}, 1), stop: make(chan struct{})}
	go b.run()
	go b.tick()
	c, err := redelivery.Wrap(b)
	require.NoError(t, err)
	defer c.Close()
	r := &modelRun{t: t, rng: rng, b: b, c: c, policy: policy, times: times, known: map[modelIDs]*modelMessage{}, start: time.Now()}
	defer func() {
		if t.Failed() {
			t.Logf("the end of what happened:\n%s", strings.Join(r.trace[max(0, len(r.trace)-150):], "\n"))
		}
	}()
	for range steps {
		r.step()
	}
	r.drain()
	t.Logf("%d entries, %d requests, %+v", len(b.entries), b.sent, c.Stats())
}
