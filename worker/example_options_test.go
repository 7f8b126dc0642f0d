package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"golang.org/x/time/rate"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// serve runs a Worker until it has handled all orders with success.
func serve(orders []string, handler worker.Handler, options ...worker.Option) {
	withOrders(orders, func(consumer *redelivery.Consumer, _ *pulsartest.Server) {
		ctx, cancel := context.WithCancel(context.Background())
		var succeeded atomic.Int64
		w, err := worker.New(consumer, func(ctx context.Context, msg pulsar.Message) error {
			err := handler(ctx, msg)
			if err == nil && int(succeeded.Add(1)) == len(orders) {
				cancel()
			}
			return err
		}, append([]worker.Option{worker.WithConcurrency(1), worker.WithLogger(slog.New(slog.DiscardHandler))}, options...)...)
		if err != nil {
			log.Fatal(err)
		}
		if err := w.Run(ctx); err != nil {
			log.Fatal(err)
		}
	})
}

func ExampleWithConcurrency() {
	var both sync.WaitGroup
	both.Add(2)
	serve([]string{"tea", "coffee"}, func(context.Context, pulsar.Message) error {
		both.Done()
		both.Wait() // each waits for the other
		return nil
	}, worker.WithConcurrency(2))
	fmt.Println("both were handled at the same time")
	// Output: both were handled at the same time
}

func ExampleWithTimeout() {
	serve([]string{"tea"}, func(ctx context.Context, msg pulsar.Message) error {
		if msg.RedeliveryCount() > 0 {
			return nil
		}
		<-ctx.Done() // as in a call that gets no answer
		fmt.Println(context.Cause(ctx))
		return ctx.Err()
	}, worker.WithTimeout(10*time.Millisecond))
	// Output: worker: the handler's timeout is over
}

func ExampleWithDrainTimeout() {
	withOrders([]string{"tea"}, func(consumer *redelivery.Consumer, _ *pulsartest.Server) {
		ctx, stop := context.WithCancel(context.Background())
		w, err := worker.New(consumer, func(ctx context.Context, _ pulsar.Message) error {
			stop() // a deployment sends SIGTERM while the handler is at work
			<-ctx.Done()
			fmt.Println(context.Cause(ctx))
			return ctx.Err() // so the broker delivers it to another process
		}, worker.WithDrainTimeout(10*time.Millisecond), worker.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(w.Run(ctx), w.Stats().Left)
	})
	// Output:
	// worker: the drain timeout is over
	// <nil> 1
}

func ExampleWithMiddleware() {
	greet := func(next worker.Handler) worker.Handler {
		return func(ctx context.Context, msg pulsar.Message) error {
			fmt.Print("hello, ")
			return next(ctx, msg)
		}
	}
	serve([]string{"tea"}, func(_ context.Context, msg pulsar.Message) error {
		fmt.Println(string(msg.Payload()))
		return nil
	}, worker.WithMiddleware(greet))
	// Output: hello, tea
}

func ExampleWithObserver() {
	serve([]string{"coffee"}, func(_ context.Context, msg pulsar.Message) error {
		if msg.RedeliveryCount() == 0 {
			return errors.New("the machine is cold")
		}
		return nil
	}, worker.WithObserver(worker.Observer{Handled: func(h worker.Handled) { fmt.Println(h.Outcome, h.Err) }}))
	// Output:
	// nacked the machine is cold
	// acked <nil>
}

func ExampleSnooze() {
	opens := time.Now().Add(50 * time.Millisecond)
	serve([]string{"coffee"}, func(_ context.Context, msg pulsar.Message) error {
		if wait := time.Until(opens); wait > 0 {
			return worker.Snooze(wait) // no attempt: nothing failed
		}
		fmt.Println("redelivery", msg.RedeliveryCount())
		return nil
	})
	// Output: redelivery 0
}

func ExampleWithRateLimit() {
	perSecond := rate.NewLimiter(100, 1) // what the called service allows; several Workers may share a limiter
	began := time.Now()
	serve([]string{"tea", "coffee", "water"}, func(context.Context, pulsar.Message) error { return nil }, worker.WithRateLimit(perSecond))
	fmt.Println(time.Since(began) >= 20*time.Millisecond)
	// Output: true
}

func ExampleWithLocalRetries() {
	calls := 0
	serve([]string{"tea"}, func(_ context.Context, msg pulsar.Message) error {
		calls++
		if calls == 1 {
			return errConflict
		}
		fmt.Println("call", calls, "redelivery", msg.RedeliveryCount())
		return nil
	}, worker.WithLocalRetries(2, backoff.Fixed(10*time.Millisecond)))
	// Output: call 2 redelivery 0
}

// The error chooses the dead letter topic: orders that cannot be parsed go to a topic of their publisher, who corrects
// them.
func ExampleWithClassifier_deadLetterTopic() {
	withOrders([]string{"{"}, func(consumer *redelivery.Consumer, server *pulsartest.Server) {
		ctx, cancel := context.WithCancel(context.Background())
		w, err := worker.New(consumer, func(_ context.Context, msg pulsar.Message) error {
			var order struct{ Item string }
			return json.Unmarshal(msg.Payload(), &order)
		}, worker.WithLogger(slog.New(slog.DiscardHandler)), worker.WithClassifier(func(err error) error {
			var malformed *json.SyntaxError
			if errors.As(err, &malformed) {
				cancel() // this was the only order
				return worker.Permanent(redelivery.DeadLetterTo("malformed", err))
			}
			return err
		}))
		if err != nil {
			log.Fatal(err)
		}
		if err := w.Run(ctx); err != nil {
			log.Fatal(err)
		}
		fmt.Println(w.Stats().Permanent, "dead letter")
	})
	// Output: 1 dead letter
}

func ExampleWithPolicy() {
	quick, slow := backoff.Fixed(10*time.Millisecond), backoff.Exponential{Min: time.Minute, Max: time.Hour}
	serve([]string{"tea"}, func(_ context.Context, msg pulsar.Message) error {
		if msg.RedeliveryCount() == 0 {
			return fmt.Errorf("updating the order: %w", errConflict)
		}
		fmt.Println("redelivery", msg.RedeliveryCount())
		return nil
	}, worker.WithPolicy(func(_ pulsar.Message, err error) backoff.RedeliveryBackoff {
		if errors.Is(err, errConflict) { // another transaction changed the row at the same moment
			return quick
		}
		return slow
	}))
	// Output: redelivery 1
}

var errConflict = errors.New("conflict")

func ExampleRetryAfter() {
	serve([]string{"coffee"}, func(_ context.Context, msg pulsar.Message) error {
		if msg.RedeliveryCount() == 0 {
			return worker.RetryAfter(20*time.Millisecond, errors.New("503: try again in 20 ms"))
		}
		fmt.Println("redelivery", msg.RedeliveryCount())
		return nil
	})
	// Output: redelivery 1
}

func ExampleWithFinishBatches() {
	serve([]string{"tea", "coffee"}, func(context.Context, pulsar.Message) error { return nil },
		worker.WithFinishBatches(false)) // a drain takes no more messages: unfinished batches come again
	fmt.Println("done")
	// Output: done
}
