package worker_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
	"github.com/pulsar-redelivery/redelivery/worker/workertest"
)

func snippet(ctx context.Context, consumer *redelivery.Consumer) error {
	type order struct{}
	serve := func(context.Context, order) error { return nil }
	// docs: begin
	w, err := worker.New(consumer, func(ctx context.Context, msg pulsar.Message) error {
		var o order
		if err := json.Unmarshal(msg.Payload(), &o); err != nil {
			return worker.Permanent(err)
		}
		return serve(ctx, o)
	}, worker.WithConcurrency(8), worker.WithTimeout(time.Minute))
	if err != nil {
		return err
	}
	return w.Run(ctx)
	// docs: end
}

func snippetOfKeyOrder(consumer *redelivery.Consumer, handler worker.Handler) (*worker.Worker, error) {
	w, err := worker.New(consumer, handler, worker.WithKeyOrder())
	return w, err
}

func snippetOfBatches(consumer *redelivery.Consumer, insert worker.BatchHandler) (*worker.Worker, error) {
	w, err := worker.NewBatch(consumer, func(ctx context.Context, msgs []pulsar.Message) error {
		return insert(ctx, msgs) // nil, an error for all, or a worker.BatchError with one for each that failed
	}, worker.Batch{MaxMessages: 500, MaxWait: 50 * time.Millisecond})
	return w, err
}

func snippetOfOutages(consumer *redelivery.Consumer, handler worker.Handler) (*worker.Worker, error) {
	w, err := worker.New(consumer, handler,
		worker.WithPauseOnFailure(20, 0.9, backoff.Exponential{Min: time.Second, Max: 10 * time.Second}))
	return w, err
}

func TestSnippetOfTests(t *testing.T) {
	handler := func(context.Context, pulsar.Message) error { return errTest }
	// docs: begin
	setup := workertest.Setup{Consumer: pulsar.ConsumerOptions{DLQ: &pulsar.DLQPolicy{MaxDeliveries: 2}}}
	got := setup.Run(t, handler, &pulsar.ProducerMessage{Payload: []byte("tea")})
	require.Equal(t, []string{"no luck: back after 1m0s", "no luck: dead letter: no luck"}, got[0].Strings())
	// docs: end
}

func TestSnippetOfSubscriptions(t *testing.T) {
	var setup workertest.Setup
	insert := func(context.Context, []pulsar.Message) error { return nil }
	errDown := errTest
	var rows []*pulsar.ProducerMessage
	for range 1000 {
		rows = append(rows, &pulsar.ProducerMessage{Payload: []byte("row")})
	}
	synctest.Test(t, func(t *testing.T) {
		orders := setup.Subscription(t)
		w := orders.StartBatch(insert, worker.Batch{MaxMessages: 10}, worker.WithPauseOnFailure(20, 0.9, backoff.Fixed(10*time.Second)))
		orders.Outage(errDown)  // all calls fail
		orders.Publish(rows...) // 1,000: a batch that fails is one failure, and 18 of these make an outage
		time.Sleep(2 * time.Minute)
		require.True(t, w.Stats().Outage)
		orders.Outage(nil)
		orders.Settle(time.Minute) // or the test fails
		for _, attempts := range orders.Attempts() {
			require.Equal(t, "acked", attempts[len(attempts)-1].String())
		}
	})
}

// Every Go snippet of docs/worker.md is in this file, too, so that the compiler checks it.
func TestSnippetsCompile(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		assert.NoError(t, snippet(ctx, t.consumer))
		for _, snippet := range []func(*redelivery.Consumer, worker.Handler) (*worker.Worker, error){snippetOfKeyOrder, snippetOfOutages} {
			_, err := snippet(t.consumer, succeed)
			assert.NoError(t, err)
		}
		_, err := snippetOfBatches(t.consumer, func(context.Context, []pulsar.Message) error { return nil })
		assert.NoError(t, err)
	})
	source, err := os.ReadFile("docs_test.go")
	require.NoError(t, err)
	compiled := strings.ReplaceAll(string(source), "\n\t", "\n")
	guide, err := os.ReadFile("../docs/worker.md")
	require.NoError(t, err)
	blocks := strings.Split(string(guide), "```go\n")[1:]
	assert.Len(t, blocks, 6)
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		assert.Contains(t, compiled, code)
	}
}
