package workertest

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/virtual"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// Interrupt finds effects that happen twice. It delivers msg to a handler, cuts the handler off after its first step,
// as if the process died there, and delivers msg again. It does the same with a cut after the second step, and so on
// until a handler returns without a cut.
//
// Steps are the calls that have effects: Step marks one, and a database of OpenSQL has one for each statement and each
// commit. For each cut, setup returns a handler with a fresh database or another fresh target of the effects. check
// looks at the effects after the message is acknowledged, and calls t.Errorf if there are too many or too few. Each cut
// is a subtest, whose name has the number of the step:
//
//	workertest.Interrupt(t, &pulsar.ProducerMessage{Payload: []byte("7")}, func(t testing.TB) worker.Handler {
//		db = open(t)
//		return box.Handler(transfer)
//	}, func(t testing.TB) {
//		if n := count(db); n != 1 {
//			t.Errorf("%d transfers, want 1", n)
//		}
//	})
//
// A cut is a panic in the handler's goroutine: deferred calls run, although a process that dies runs none. Interrupt
// runs in real time, so that the handler may use a real database. After a cut the message comes again at once.
func Interrupt(t *testing.T, msg *pulsar.ProducerMessage, setup func(t testing.TB) worker.Handler,
	check func(t testing.TB)) {
	t.Helper()
	for n := int64(1); n <= maxSteps; n++ {
		s := &steps{cutAfter: n}
		t.Run(fmt.Sprintf("cut off after step %d", n), func(t *testing.T) {
			s.deliver(t, msg, setup(t))
			check(t)
		})
		if s.taken.Load() < n {
			return
		}
	}
	t.Errorf("workertest: the handler takes more than %d steps", maxSteps)
}

const maxSteps = 1000

// Step marks the end of a call that has an effect, for Interrupt: a request, a publication, a write to a file. ctx is
// the handler's context or derived from it. Without Interrupt, Step does nothing.
func Step(ctx context.Context) {
	if s, ok := ctx.Value(stepsKey{}).(*steps); ok && s.taken.Add(1) == s.cutAfter {
		panic(cut(s.cutAfter))
	}
}

type stepsKey struct{}

// cut is the value of the panic that cuts a handler off.
type cut int64

func (c cut) String() string { return fmt.Sprintf("cut off after step %d", int64(c)) }

// steps counts the steps of all calls of the handler for one message, including the calls after the cut.
type steps struct {
	cutAfter int64
	taken    atomic.Int64
}

// deliver runs a Worker until the message is acknowledged.
func (s *steps) deliver(t *testing.T, msg *pulsar.ProducerMessage, handler worker.Handler) {
	t.Helper()
	broker, quiet := &virtual.Broker{}, slog.New(slog.DiscardHandler)
	consumer, err := redelivery.Subscribe(broker,
		pulsar.ConsumerOptions{Topic: "topic", SubscriptionName: "subscription", Type: pulsar.Shared},
		redelivery.WithLogger(quiet), redelivery.WithNackRedeliveryDelay(0))
	if err != nil {
		t.Fatalf("workertest: %v", err)
	}
	defer consumer.Close()
	failed := make(chan error, maxTries)
	w, err := worker.New(consumer, func(ctx context.Context, msg pulsar.Message) error {
		err := handler(context.WithValue(ctx, stepsKey{}, s), msg)
		if err != nil {
			select {
			case failed <- err:
			default:
			}
		}
		return err
	}, worker.WithLogger(quiet))
	if err != nil {
		t.Fatalf("workertest: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() { cancel(); <-done }()
	broker.Publish("topic", msg)
	for deadline := time.Now().Add(patience); len(broker.Unacked()) > 0; time.Sleep(time.Millisecond) {
		switch {
		case len(failed) == maxTries:
			t.Fatalf("workertest: the handler failed %d times, the first time with: %v", maxTries, <-failed)
		case time.Now().After(deadline):
			t.Fatalf("workertest: the message is not acknowledged after %v", patience)
		}
	}
}

const (
	maxTries = 10               // failed calls after which the test fails; calls that are cut off do not count
	patience = 30 * time.Second // for one message
)
