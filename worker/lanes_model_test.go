package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/virtual"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// keyPlan is the plan of a random run: Workers with key order join and leave a subscription.
type keyPlan struct {
	kind          pulsar.SubscriptionType
	concurrency   int
	batch         worker.Batch // zero for a Handler
	memoryLimit   int64
	ackTimeout    time.Duration // 0 for none
	drain         time.Duration
	maxDeliveries uint32          // 0 for no dead letter topic
	window        int             // of the pause on failure; 0 for none
	pause         time.Duration   // of an outage
	shifts        []span          // when each Worker runs
	drops         []time.Duration // when all connections drop
	messages      []keyed
}

// keyed is a message whose handler fails a number of times.
type keyed struct {
	at, takes time.Duration
	key       string
	fails     int
	how       result // fails, retryAfter, panics; or permanent, which applies only to the last failure
}

// end is when the shift of the last Worker begins. All other shifts are over by then.
const end = 5 * time.Minute

func drawKeyPlan(t *rapid.T) keyPlan {
	c := keyPlan{
		kind:        rapid.SampledFrom([]pulsar.SubscriptionType{pulsar.KeyShared, pulsar.Failover}).Draw(t, "type"),
		concurrency: rapid.IntRange(1, 4).Draw(t, "concurrency"),
		batch: rapid.SampledFrom([]worker.Batch{{}, {}, {MaxMessages: 3}, {MaxMessages: 5, MaxWait: 2 * time.Second}}).
			Draw(t, "batch"),
		memoryLimit:   rapid.SampledFrom([]int64{1, 1500, 1 << 20}).Draw(t, "memoryLimit"),
		ackTimeout:    rapid.SampledFrom([]time.Duration{0, 6 * time.Second}).Draw(t, "ackTimeout"),
		drain:         rapid.SampledFrom([]time.Duration{0, time.Second, 30 * time.Second}).Draw(t, "drain"),
		maxDeliveries: uint32(rapid.SampledFrom([]int{0, 3}).Draw(t, "maxDeliveries")),
		window:        rapid.SampledFrom([]int{0, 0, 1, 2, 5}).Draw(t, "window"),
		pause:         rapid.SampledFrom([]time.Duration{500 * time.Millisecond, 2 * time.Second, 5 * time.Second}).Draw(t, "pause"),
		shifts:        []span{{end, end + time.Hour}}, // of the last Worker: by its end all messages must be settled
	}
	for i := range rapid.IntRange(1, 5).Draw(t, "shifts") {
		from := time.Duration(rapid.IntRange(0, 3000).Draw(t, "from"))*tick + time.Duration(i+1)*time.Millisecond
		c.shifts = append(c.shifts, span{from, from + time.Duration(rapid.IntRange(0, 3000).Draw(t, "for"))*tick})
	}
	for range rapid.IntRange(0, 2).Draw(t, "drops") {
		c.drops = append(c.drops, time.Duration(rapid.IntRange(0, 6000).Draw(t, "drop"))*tick+500*time.Microsecond)
	}
	keys := rapid.SampledFrom([][]string{{"a"}, {"a", "a", "a", "a", "b"}, {"a", "b", "c", "d", "e", "f"}, {"a", "b", ""}}).Draw(t, "keys")
	for range rapid.IntRange(1, 30).Draw(t, "messages") {
		c.messages = append(c.messages, keyed{
			at:    time.Duration(rapid.IntRange(0, 2000).Draw(t, "at")) * tick,
			takes: time.Duration(rapid.SampledFrom([]int{0, 0, 1, 50, 300}).Draw(t, "takes")) * tick,
			key:   rapid.SampledFrom(keys).Draw(t, "key"),
			fails: rapid.SampledFrom([]int{0, 0, 0, 1, 2, 5}).Draw(t, "fails"),
			how:   rapid.SampledFrom([]result{fails, fails, permanent, retryAfter, panics}).Draw(t, "how"),
		})
	}
	return c
}

// handlerCall is a message in a call of a Worker's handler.
type handlerCall struct {
	msg, worker  int
	began, ended time.Duration // ended is -1 while the call lasts
	lost         bool          // owners changed during the call
}

// keyRun is a keyPlan that runs, with all calls of its handlers.
type keyRun struct {
	keyPlan
	began  time.Time
	broker *virtual.Broker

	mu     sync.Mutex
	calls  []*handlerCall
	failed map[int]int
	done   map[int]bool // succeeded, or failed for good
	moved  bool         // owners have changed at least once
	wrong  []string
}

func (m *keyRun) errorf(format string, args ...any) {
	m.wrong = append(m.wrong, fmt.Sprintf(format, args...))
}

// handle is the handler of a worker.
func (m *keyRun) handle(of int, ctx context.Context, msgs []pulsar.Message) error {
	var calls []*handlerCall
	var takes time.Duration
	m.mu.Lock()
	for _, msg := range msgs {
		call := &handlerCall{worker: of, began: time.Since(m.began), ended: -1}
		_, _ = fmt.Sscan(string(msg.Payload()), &call.msg)
		m.check(call, msg)
		calls, m.calls = append(calls, call), append(m.calls, call)
		takes = max(takes, m.messages[call.msg].takes)
	}
	m.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	errs := worker.BatchError{}
	for i, call := range calls {
		call.ended = time.Since(m.began)
		msg := m.messages[call.msg]
		switch {
		case ctx.Err() != nil:
			errs[i] = ctx.Err()
		case m.failed[call.msg] == msg.fails:
			m.done[call.msg] = true
		default:
			m.failed[call.msg]++
			switch err := errors.New("no luck"); {
			case msg.how == retryAfter:
				errs[i] = worker.RetryAfter(retryDelay, err)
			case msg.how == permanent && m.failed[call.msg] == msg.fails:
				errs[i] = worker.Permanent(err)
			case msg.how == panics && len(msgs) == 1:
				defer panic(err)
			default:
				errs[i] = err
			}
		}
	}
	return errs
}

// check checks a call that begins: no other call with its key is under way, no later message of the key was handled,
// and the message has not succeeded. Lost messages are exempt. The caller holds mu.
func (m *keyRun) check(call *handlerCall, msg pulsar.Message) {
	key := m.messages[call.msg].key
	if key == "" {
		return
	}
	for _, other := range m.calls {
		if m.messages[other.msg].key != key || other.lost { // a lost message may be handled by two consumers
			continue
		}
		// A message that the previous owner acknowledged may be repeated.
		if other.ended < 0 && !(m.done[other.msg] && m.wasLost(other.msg)) {
			m.errorf("message %d of key %s is handled by worker %d at %v, while message %d is handled by worker %d", call.msg, key, call.worker, call.began, other.msg, other.worker)
		}
		if m.broker.Entry(fmt.Sprint(other.msg)) > int(msg.ID().EntryID()) {
			m.errorf("message %d of key %s is handled by worker %d at %v, after message %d was handled by worker %d", call.msg, key, call.worker, call.began, other.msg, other.worker)
		}
	}
	if m.done[call.msg] && !m.wasLost(call.msg) {
		m.errorf("message %d of key %s is handled by worker %d at %v, although it succeeded", call.msg, key, call.worker, call.began)
	}
}

// wasLost reports whether two consumers may handle a message: a handler had it when owners changed, or it has no key
// and owners have changed. The caller holds mu.
func (m *keyRun) wasLost(msg int) bool {
	return m.moved && m.messages[msg].key == "" || slices.ContainsFunc(m.calls, func(call *handlerCall) bool { return call.msg == msg && call.lost })
}

// change calls how, which changes the owners. Messages that are in handlers are delivered to their new owners.
func (m *keyRun) change(how func()) {
	m.mu.Lock()
	for _, call := range m.calls {
		call.lost = call.lost || call.ended < 0
	}
	m.moved = true
	m.mu.Unlock()
	how()
}

func TestKeyOrderModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := drawKeyPlan(rt)
		var wrong []string
		synctest.Test(t, func(*testing.T) { wrong = c.run() })
		if len(wrong) > 0 {
			rt.Fatal(strings.Join(wrong, "\n"))
		}
	})
}

// A Worker whose memory limit is reached loses a message of a key, and gets newer messages of the key from its queue.
// Then the other consumer leaves, and the lost message comes back behind the newer ones. It is handled before them.
func TestLostMessageGoesFirstThoughThereIsNoRoom(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	c := keyPlan{kind: pulsar.KeyShared, concurrency: 1, batch: worker.Batch{MaxMessages: 5, MaxWait: 2 * time.Second}, memoryLimit: 1,
		shifts: []span{{end, end + time.Hour}, {ms(561), ms(6051)}, {ms(3), ms(30_003)}, {ms(4), ms(4014)}},
		drops:  []time.Duration{ms(2010) + 500*time.Microsecond}}
	for _, at := range []int{10, 10, 170, 190, 260, 940, 2080, 3560} {
		c.messages = append(c.messages, keyed{at: ms(at), key: "a"})
	}
	c.messages[0].takes, c.messages[0].fails, c.messages[0].how = 3*time.Second, 5, fails
	for range 20 {
		synctest.Test(t, func(t *testing.T) { require.Empty(t, c.run()) })
	}
}

func (c keyPlan) run() []string {
	m := &keyRun{keyPlan: c, began: time.Now(), broker: &virtual.Broker{}, failed: map[int]int{}, done: map[int]bool{}}
	for n, msg := range c.messages {
		time.AfterFunc(msg.at, func() {
			m.broker.Publish("orders", &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(n)), Key: msg.key})
		})
	}
	for _, at := range c.drops {
		time.AfterFunc(at, func() {
			if m.broker.Consumers() == 1 { // the only consumer gets its own messages again
				m.broker.Reconnect()
			} else if m.kind == pulsar.KeyShared { // on Failover, a consumer's queue has old messages of a partition that comes back to it
				m.change(m.broker.Reconnect)
			}
		})
	}
	var all sync.WaitGroup
	for i, s := range c.shifts {
		all.Go(func() {
			time.Sleep(s.from)
			if err := m.work(i, s.to-s.from); err != nil {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.errorf("worker %d: %v", i, err)
			}
		})
	}
	all.Wait()
	m.checkEnd()
	if len(m.wrong) > 0 {
		for _, call := range m.calls {
			m.errorf("  %+v key %s entry %d", *call, m.messages[call.msg].key, m.broker.Entry(fmt.Sprint(call.msg)))
		}
	}
	return m.wrong
}

// work runs a Worker for its shift.
func (m *keyRun) work(i int, shift time.Duration) error {
	opts := pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing", Type: m.kind}
	if m.maxDeliveries > 0 {
		opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: m.maxDeliveries}
	}
	options := []redelivery.Option{redelivery.WithLogger(quiet), redelivery.WithNackRedeliveryDelay(nackDelay), redelivery.WithMemoryLimit(m.memoryLimit)}
	if m.ackTimeout > 0 {
		options = append(options, redelivery.WithAckTimeout(m.ackTimeout))
	}
	consumer, err := redelivery.Subscribe(m.broker, opts, options...)
	if err != nil {
		return err
	}
	defer consumer.Close()
	workerOptions := []worker.Option{worker.WithKeyOrder(), worker.WithLogger(quiet),
		worker.WithConcurrency(m.concurrency), worker.WithDrainTimeout(m.drain)}
	if m.window > 0 {
		workerOptions = append(workerOptions, worker.WithPauseOnFailure(m.window, 1, backoff.Fixed(m.pause)))
	}
	w, err := worker.NewBatch(consumer, func(ctx context.Context, msgs []pulsar.Message) error {
		return m.handle(i, ctx, msgs)
	}, m.batch, workerOptions...)
	if m.batch == (worker.Batch{}) {
		w, err = worker.New(consumer, func(ctx context.Context, msg pulsar.Message) error {
			return m.handle(i, ctx, []pulsar.Message{msg}).(worker.BatchError)[0]
		}, workerOptions...)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), shift)
	defer cancel()
	return w.Run(ctx)
}

// checkEnd checks that every message was settled.
func (m *keyRun) checkEnd() {
	acked := m.broker.Acked("orders")
	dead := map[string]int{}
	tries := int(m.maxDeliveries)
	if m.kind == pulsar.KeyShared && len(m.drops) > 0 { // the broker counts deliveries that a Worker without room requests
		tries--
	}
	for _, letter := range m.broker.Published(deadLetters) {
		dead[string(letter.Payload)]++
	}
	for n, msg := range m.messages {
		payload := fmt.Sprint(n)
		wantDead := m.maxDeliveries > 0 && msg.fails > 0 && (msg.how == permanent || msg.fails >= int(m.maxDeliveries))
		switch {
		case !slices.Contains(acked, payload):
			m.errorf("message %d of key %s is left: failed %d times", n, msg.key, m.failed[n])
		case dead[payload] > 1 && !m.wasLost(n), dead[payload] == 1 && !wantDead && m.failed[n] < tries, dead[payload] == 1 == m.done[n] && !m.wasLost(n):
			m.errorf("message %d of key %s: failed %d times, succeeded %v, dead letters %d", n, msg.key, m.failed[n], m.done[n], dead[payload])
		}
	}
}
