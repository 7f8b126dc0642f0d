package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"pgregory.net/rapid"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/virtual"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// attempt is a message in a call of the handler.
type attempt struct {
	msg, call  int
	began      time.Duration
	ended      time.Duration // -1 while the attempt lasts
	ctxEnded   time.Duration // when the handler saw its context end; -1 if it did not
	does       step          // what the handler does; the same for all messages of a call
	reason     string        // the reason that a dead letter must have
	halved     bool          // the attempt does not count, since its batch is halved
	whole      bool          // its batch failed as a whole
	local      certainty     // whether a local retry follows
	afterDrain bool          // when it returned, the drain timeout had ended its context
}

// watched is a plan that runs.
type watched struct {
	plan
	began    time.Time
	release  chan struct{} // closed to let the stuck handlers return
	badAcks  atomic.Bool
	badSends atomic.Bool

	mu       sync.Mutex
	attempts []*attempt
	active   int
	calls    int
	outages  []span // span.to is -1 while the outage lasts
	wrong    []string

	seen []attempt // a copy of attempts, made by look
}

func (m *watched) errorf(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wrong = append(m.wrong, fmt.Sprintf(format, args...))
}

func (m *watched) now() time.Duration { return time.Since(m.began) }

func (m *watched) handle(ctx context.Context, msg pulsar.Message) error {
	of := m.begin(msg)
	m.work(ctx, of)
	return of[0].result()
}

func (m *watched) handleBatch(ctx context.Context, msgs []pulsar.Message) error {
	of := m.begin(msgs...)
	m.checkBatch(msgs, of[0].began)
	m.work(ctx, of)
	errs := worker.BatchError{}
	for i, a := range of {
		if err := a.result(); err != nil {
			errs[i] = err
		}
	}
	return errs
}

// begin notes an attempt for each message. If the plan for one message is to panic or to exit, the whole call does so.
func (m *watched) begin(msgs ...pulsar.Message) (of []*attempt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.active++
	m.calls++
	m.checkPlaces()
	var all step
	reason, again := "", m.maxDeliveries == 1
	for _, msg := range msgs {
		again = again || msg.RedeliveryCount() > 0
		var n, before int
		_, _ = fmt.Sscan(string(msg.Payload()), &n)
		for _, a := range m.attempts {
			if a.msg == n {
				before++
			}
			if a.msg == n && a.ended < 0 {
				m.wrong = append(m.wrong, fmt.Sprintf("message %d is handled twice at a time, at %v", n, m.now()))
			}
		}
		steps := m.messages[n].steps
		a := &attempt{msg: n, call: m.calls, began: m.now(), ended: -1, ctxEnded: -1, does: steps[min(before, len(steps)-1)]}
		a.reason = fmt.Sprintf("attempt %d", before)
		of, m.attempts = append(of, a), append(m.attempts, a)
		if len(of) == 1 {
			all = a.does
		}
		all.takes, all.stuck, all.heeds = max(all.takes, a.does.takes), all.stuck || a.does.stuck, all.heeds && a.does.heeds
		if a.does.returns >= panics && (len(of) == 1 || all.returns < panics) {
			all.returns, reason = a.does.returns, a.reason
		}
	}
	for _, a := range of {
		a.does.takes, a.does.stuck, a.does.heeds = all.takes, all.stuck, all.heeds
		if all.returns >= panics {
			a.does.returns, a.reason, a.whole = all.returns, reason, len(of) > 1
			a.halved = a.whole && again && m.localRetries == 0
		}
	}
	return of
}

func (m *watched) work(ctx context.Context, of []*attempt) {
	does, ctxEnded := of[0].does, time.Duration(-1)
	over := time.After(does.takes)
	switch {
	case does.stuck:
		<-m.release
	case does.heeds:
		select {
		case <-over:
		case <-ctx.Done():
			ctxEnded = m.now()
		}
	default:
		<-over
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.active--
	for _, a := range of {
		a.ended, a.ctxEnded = m.now(), ctxEnded
		a.afterDrain = errors.Is(context.Cause(ctx), worker.ErrDrainTimeout) || a.ended >= m.done+m.drain
	}
	old := slices.ContainsFunc(of, func(a *attempt) bool { return m.expired(*a) })
	for _, a := range of {
		a.halved = a.halved || a.whole && old && m.localRetries == 0
	}
}

func (a *attempt) result() error {
	switch err := errors.New(a.reason); a.does.returns {
	case succeeds:
		return nil
	case permanent:
		return worker.Permanent(err)
	case retryAfter:
		return worker.RetryAfter(retryDelay, err)
	case snoozes:
		return worker.Snooze(retryDelay)
	case panics:
		panic(err)
	case exits:
		runtime.Goexit()
		return nil
	default:
		return err
	}
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt)
		var wrong []string
		synctest.Test(t, func(*testing.T) { wrong = p.run() })
		if len(wrong) > 0 {
			rt.Fatal(strings.Join(wrong, "\n"))
		}
	})
}

// run runs the plan and returns the faults.
func (p plan) run() []string {
	m := &watched{plan: p, began: time.Now(), release: make(chan struct{})}
	broker := &virtual.Broker{
		Ack: func(pulsar.MessageID) error {
			if m.badAcks.Load() {
				return errTest
			}
			return nil
		},
		Send: func(string) error {
			if m.badSends.Load() {
				return errTest
			}
			return nil
		},
	}
	opts := pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing", Type: p.kind}
	if p.maxDeliveries > 0 {
		opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: p.maxDeliveries}
	}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	options := []redelivery.Option{redelivery.WithLogger(quiet), redelivery.WithNackRedeliveryDelay(nackDelay), redelivery.WithMemoryLimit(p.memoryLimit)}
	if p.ackTimeout > 0 {
		options = append(options, redelivery.WithAckTimeout(p.ackTimeout))
	}
	consumer, err := redelivery.Subscribe(broker, opts, options...)
	if err != nil {
		return []string{err.Error()}
	}
	workerOptions := []worker.Option{worker.WithLogger(quiet), worker.WithConcurrency(p.concurrency), worker.WithDrainTimeout(p.drain),
		worker.WithStuckLimit(p.stuckLimit)}
	if p.timeout > 0 {
		workerOptions = append(workerOptions, worker.WithTimeout(p.timeout))
	}
	if p.keyOrder {
		workerOptions = append(workerOptions, worker.WithKeyOrder())
	}
	if p.maxAge > 0 {
		workerOptions = append(workerOptions, worker.WithMaxAge(p.maxAge))
	}
	if p.outage.window > 0 {
		workerOptions = append(workerOptions, worker.WithObserver(worker.Observer{Paused: m.noteOutage}),
			worker.WithPauseOnFailure(p.outage.window, p.outage.ratio, backoff.Fixed(p.outage.pause)))
	}
	workerOptions = append(workerOptions, p.retryAndLimit()...)
	w, err := worker.New(consumer, m.handle, workerOptions...)
	if p.batch != (worker.Batch{}) {
		w, err = worker.NewBatch(consumer, m.handleBatch, p.batch, workerOptions...)
	}
	if err != nil {
		return []string{err.Error()}
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(p.done, cancel)
	for n, msg := range p.messages {
		time.AfterFunc(msg.at, func() {
			broker.Publish("orders", &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(n)), Key: msg.key})
		})
	}
	var over atomic.Bool
	for i, e := range m.events {
		time.AfterFunc(e.at, func() {
			if !m.happen(e.what, w, broker) && !over.Load() {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.events[i].what = "nothing"
			}
		})
	}
	runErr := w.Run(ctx)
	returned := m.now()
	over.Store(true)
	synctest.Wait()
	if errors.Is(runErr, worker.ErrStuck) {
		m.checkStuck()
	} else {
		m.check(w, broker, returned, runErr)
	}
	close(m.release)
	time.Sleep(time.Hour) // until all planned events and publications are over
	consumer.Close()
	synctest.Wait()
	m.checkAfter(returned)
	return m.wrong
}

// happen makes an event happen. It reports false if the event is impossible: a Consumer that gave its messages back has
// no connection to give up.
func (m *watched) happen(what string, w *worker.Worker, broker *virtual.Broker) bool {
	switch what {
	case "pause":
		w.Pause()
	case "resume":
		w.Resume()
	case "reconnect":
		broker.Reconnect()
	case "acks fail":
		m.badAcks.Store(true)
	case "acks work":
		m.badAcks.Store(false)
	case "sends fail":
		m.badSends.Store(true)
	case "sends work":
		m.badSends.Store(false)
	case "give up":
		return broker.GiveUp(errTest)
	}
	return true
}
