package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// serve has a Worker with options handle orders, until each has succeeded.
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
	var together meeting
	serve([]string{"tea", "coffee"}, func(context.Context, pulsar.Message) error {
		together.wait(2) // each waits for the other
		return nil
	}, worker.WithConcurrency(2))
	fmt.Println("both were handled at the same time")
	// Output: both were handled at the same time
}

// meeting has several goroutines wait for each other.
type meeting struct{ n atomic.Int64 }

func (m *meeting) wait(n int64) {
	for m.n.Add(1); m.n.Load() < n; {
		time.Sleep(time.Millisecond)
	}
}

func ExampleWithTimeout() {
	serve([]string{"tea"}, func(ctx context.Context, msg pulsar.Message) error {
		if msg.RedeliveryCount() > 0 {
			return nil
		}
		<-ctx.Done() // a call of something that does not answer
		fmt.Println(context.Cause(ctx))
		return ctx.Err()
	}, worker.WithTimeout(10*time.Millisecond))
	// Output: worker: the handler's timeout is over
}

func ExampleWithDrainTimeout() {
	withOrders([]string{"tea"}, func(consumer *redelivery.Consumer, _ *pulsartest.Server) {
		ctx, stop := context.WithCancel(context.Background())
		w, err := worker.New(consumer, func(ctx context.Context, _ pulsar.Message) error {
			stop() // a deployment sends SIGTERM while the message is at work
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
		worker.WithFinishBatches(false)) // a drain takes no more, and batches that were begun come again whole
	fmt.Println("done")
	// Output: done
}
