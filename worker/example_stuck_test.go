package worker_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

func ExampleWithStuckLimit() {
	serve([]string{"tea"}, func(context.Context, pulsar.Message) error { return nil },
		worker.WithTimeout(time.Minute), worker.WithStuckLimit(10*time.Second)) // after 70 seconds another handler is called in its place
	fmt.Println("done")
	// Output: done
}

func ExampleWithCancelLost() {
	withOrders([]string{"tea"}, func(consumer *redelivery.Consumer, broker *pulsartest.Server) {
		ctx, stop := context.WithCancel(context.Background())
		w, err := worker.New(consumer, func(ctx context.Context, _ pulsar.Message) error {
			broker.RefuseConnections(true)
			broker.DropConnections() // as when the broker crashes
			<-ctx.Done()
			fmt.Println(context.Cause(ctx))
			broker.RefuseConnections(false)
			stop()
			return nil
		}, worker.WithCancelLost(), worker.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(w.Run(ctx))
	})
	// Output:
	// worker: the message may be another consumer's
	// <nil>
}

func ExampleWorker_Healthy() {
	withOrders(nil, func(consumer *redelivery.Consumer, _ *pulsartest.Server) {
		w, err := worker.New(consumer, func(context.Context, pulsar.Message) error { return nil })
		if err != nil {
			log.Fatal(err)
		}
		http.HandleFunc("/healthz", func(rw http.ResponseWriter, _ *http.Request) {
			if err := w.Healthy(); err != nil {
				http.Error(rw, err.Error(), http.StatusServiceUnavailable)
			}
		})
		fmt.Println(w.Healthy())
	})
	// Output: <nil>
}
