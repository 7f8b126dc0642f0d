package main

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
	"github.com/pulsar-redelivery/redelivery/worker/workertest"
)

func TestServeSettlesEachDrinkAsTheBarShould(t *testing.T) {
	setup := workertest.Setup{
		Consumer:   pulsar.ConsumerOptions{Type: pulsar.Shared, DLQ: &pulsar.DLQPolicy{MaxDeliveries: 5}},
		Redelivery: []redelivery.Option{redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: 200 * time.Millisecond})},
		Worker:     []worker.Option{worker.WithTimeout(time.Second)},
	}
	for payload, want := range map[string][]string{
		`{"id": 1, "drink": "water"}`:  {"acked"},
		`{"id": 1, "drink": "tea"}`:    {"spilled it: back after 200ms", "acked"},
		`{"id": 1, "drink": "coffee"}`: {"the machine cleans itself: back after 1s", "acked"},
		`~~~`: {"invalid character '~' looking for beginning of value: " +
			"dead letter: invalid character '~' looking for beginning of value"},
	} {
		got := setup.Run(t, serve, &pulsar.ProducerMessage{Payload: []byte(payload)})
		require.Equal(t, want, got[0].Strings(), payload)
	}
}

// Punch takes longer than the Worker's timeout.
func TestServeOfPunchEndsAtTheTimeout(t *testing.T) {
	setup := workertest.Setup{Worker: []worker.Option{worker.WithTimeout(time.Second)}, Attempts: 1}
	got := setup.Run(t, serve, &pulsar.ProducerMessage{Payload: []byte(`{"id": 1, "drink": "punch"}`)})
	require.Equal(t, []string{"context deadline exceeded: back after 1m0s"}, got[0].Strings())
}
