package worker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/race"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// The Worker has no room for more messages when its connection is lost. It takes the redeliveries nevertheless, which
// show that the waiting messages still belong to it.
func TestWorkerWithoutRoomContinuesSoonAfterALostConnection(t *testing.T) {
	t.Parallel()
	s := newSiteInProcess(t)
	c := s.subscribe(pulsar.ConsumerOptions{Type: pulsar.KeyShared}, redelivery.WithNackRedeliveryDelay(50*time.Millisecond), redelivery.WithMemoryLimit(1000))
	var mu sync.Mutex
	failed, handled, lost := map[string]bool{}, 0, false
	w, err := worker.New(c, func(_ context.Context, msg pulsar.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if !lost || !failed[string(msg.Payload())] {
			failed[string(msg.Payload())] = true
			return errTest
		}
		handled++
		return nil
	}, worker.WithKeyOrder(), worker.WithConcurrency(1), worker.WithLogger(quiet))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = w.Run(ctx) }()
	const messages = 60
	producer, err := s.client.CreateProducer(pulsar.ProducerOptions{Topic: s.topic, DisableBatching: true})
	require.NoError(t, err)
	defer producer.Close()
	for n := range messages {
		_, err := producer.Send(ctx, &pulsar.ProducerMessage{Key: fmt.Sprint(n % 5), Payload: []byte(fmt.Sprint(n))})
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return w.Stats().Full }, 10*time.Second, time.Millisecond)
	mu.Lock()
	lost = true
	mu.Unlock()
	s.inProcess.DropConnections()
	all := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return handled >= messages
	}
	limit := 12 * time.Second
	if race.Enabled {
		limit *= 3
	}
	if !assert.Eventually(t, all, limit, 10*time.Millisecond) {
		t.Logf("%d handled, %+v, %+v", handled, w.Stats(), c.Stats())
	}
}
