package worker_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/worker"
	"github.com/pulsar-redelivery/redelivery/worker/workertest"
)

// statusError is the answer of an HTTP server to a request that failed.
type statusError struct{ *http.Response }

func (e statusError) Error() string { return e.Status }

// classifyHTTP decides by the answer whether another request is useful, and when.
func classifyHTTP(err error) error {
	var answer statusError
	if !errors.As(err, &answer) {
		return err // a network error: the Consumer's policy decides the delay
	}
	switch code := answer.StatusCode; {
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		return worker.RetryAfter(time.Duration(cmp.Or(seconds, 5))*time.Second, err)
	case code >= 400 && code < 500:
		return worker.Permanent(err)
	}
	return err
}

// One function decides what the answers of an HTTP service mean for messages. The handler returns errors unchanged.
func ExampleWithClassifier() {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/nonsense" {
			http.Error(w, "no such drink", http.StatusUnprocessableEntity)
		}
	}))
	defer service.Close()
	withOrders([]string{"nonsense", "coffee"}, func(consumer *redelivery.Consumer, broker *pulsartest.Server) {
		ctx, cancel := context.WithCancel(context.Background())
		w, err := worker.New(consumer, func(ctx context.Context, msg pulsar.Message) error {
			answer, err := http.Post(service.URL+"/"+string(msg.Payload()), "text/plain", nil)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if answer.StatusCode >= 300 {
				return fmt.Errorf("ordering: %w", statusError{answer})
			}
			cancel()
			return nil
		}, worker.WithClassifier(classifyHTTP), worker.WithConcurrency(1), worker.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			log.Fatal(err)
		}
		if err := w.Run(ctx); err != nil {
			log.Fatal(err)
		}
		for _, letter := range broker.Messages("orders-billing-DLQ") {
			fmt.Printf("dead: %s, %s\n", letter.Payload, letter.Properties["EXCEPTION_MESSAGE"])
		}
	})
	// Output: dead: nonsense, ordering: 422 Unprocessable Entity
}

func TestClassifyHTTPDecidesByStatusAndRetryAfter(t *testing.T) {
	setup := workertest.Setup{
		Consumer: pulsar.ConsumerOptions{Type: pulsar.Shared, DLQ: &pulsar.DLQPolicy{MaxDeliveries: 9}},
		Worker:   []worker.Option{worker.WithClassifier(classifyHTTP)}, Attempts: 1,
	}
	for status, want := range map[string]string{
		"404 Not Found":           "ordering: 404 Not Found: dead letter: ordering: 404 Not Found",
		"429 Too Many Requests":   "ordering: 429 Too Many Requests: back after 2m0s",
		"503 Service Unavailable": "ordering: 503 Service Unavailable: back after 2m0s",
		"500 Internal":            "ordering: 500 Internal: back after 1m0s",
	} {
		code, _ := strconv.Atoi(status[:3])
		answer := &http.Response{Status: status, StatusCode: code, Header: http.Header{"Retry-After": {"120"}}}
		got := setup.Run(t, func(context.Context, pulsar.Message) error {
			return fmt.Errorf("ordering: %w", statusError{answer})
		}, &pulsar.ProducerMessage{Payload: []byte("tea")})
		require.Equal(t, want, got[0][0].String())
	}
}
