package main

import (
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

// The names of the topics do not matter.
func TestListAllRecognizesDeadLetterTopicsByTheirMessages(t *testing.T) {
	b := newBroker(t)
	letter := map[string]string{"REAL_TOPIC": origin, "REAL_SUBSCRIPTION": "billing", "ORIGIN_MESSAGE_ID": "1:2:-1"}
	b.subscribe(origin+"-graveyard", "audit")
	b.publish(origin+"-graveyard", &pulsar.ProducerMessage{Payload: []byte("x"), Properties: letter})
	b.publish(origin, &pulsar.ProducerMessage{Payload: []byte("x"),
		Properties: map[string]string{"REAL_TOPIC": origin, "REPLAY_RUN": "1"}})
	again := map[string]string{"REAL_TOPIC": origin, "REPLAY_RUN": "1", "DEAD_LETTER_TIME": "1700000000000"}
	b.subscribe(origin+"-twice-dead", "audit")
	b.publish(origin+"-twice-dead", &pulsar.ProducerMessage{Payload: []byte("x"), Properties: again})
	code, stdout, stderr := dlqRun("", "list")
	require.Zero(t, code, stderr)
	require.NotContains(t, stdout, "graveyard")
	code, stdout, stderr = dlqRun("", "list", "-all")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "orders-graveyard ")
	require.Contains(t, stdout, "orders-twice-dead ")
	require.NotContains(t, stdout, "\norders ")
	require.Contains(t, stdout, "orders-billing-DLQ")
}
