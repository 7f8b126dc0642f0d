package service_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/doctor"
	"github.com/pulsar-redelivery/redelivery/doctor/service"
	"github.com/pulsar-redelivery/redelivery/internal/leaktest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestHandlerShowsTheRunningOptionsAndNoSecret(t *testing.T) {
	server := pulsartest.NewServer(t)
	client, quiet := server.Client(t), slog.New(slog.DiscardHandler)
	c, err := redelivery.Subscribe(client,
		pulsar.ConsumerOptions{Topics: []string{"orders", "tea"}, SubscriptionName: "billing", Type: pulsar.Shared,
			ReceiverQueueSize: 10},
		redelivery.WithLogger(quiet), redelivery.WithAckTimeout(time.Minute),
		redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: time.Minute, Max: time.Minute}),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 5,
			InitialSubscriptionName: "inspect",
			ProducerOptions:         pulsar.ProducerOptions{Properties: map[string]string{"token": "s3cret"}}}))
	require.NoError(t, err)
	defer c.Close()
	w, err := worker.New(c, func(context.Context, pulsar.Message) error { return nil }, worker.WithLogger(quiet),
		worker.WithTimeout(3*time.Second))
	require.NoError(t, err)

	base := doctor.Setup{Admin: doctor.Admin{URL: server.AdminURL()}, Load: doctor.Load{HandlerTime: 4 * time.Second},
		Patience: time.Millisecond}
	answer := httptest.NewRecorder()
	service.Handler(c, w, base).ServeHTTP(answer,
		httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/redelivery", nil))
	require.Equal(t, http.StatusOK, answer.Code)
	require.NotContains(t, answer.Body.String(), "s3cret")
	var topics []struct {
		Topic    string
		Options  map[string]any
		Findings []struct{ Check, Status string }
	}
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &topics))
	require.Len(t, topics, 2)
	require.Equal(t, "tea", topics[1].Topic)
	o := topics[0].Options
	require.Equal(t, "1m0s", o["ackTimeout"])
	require.EqualValues(t, 5, o["maxDeliveries"])
	require.EqualValues(t, 10, o["receiverQueueSize"])
	require.Equal(t, "persistent://public/default/orders-billing-DLQ", o["deadLetterTopic"])
	require.Equal(t, "3s", o["worker"].(map[string]any)["timeout"])
	status := map[string]string{}
	for _, f := range topics[0].Findings {
		status[f.Check] = f.Status
	}
	require.Equal(t, "problem", status["worker-timeout"])
	require.Equal(t, "warning", status["policy-range"])
	require.Equal(t, "unknown", status["drain"])

	answer = httptest.NewRecorder()
	service.Handler(c, nil, base).ServeHTTP(answer,
		httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/debug/redelivery", strings.NewReader("")))
	require.Equal(t, http.StatusMethodNotAllowed, answer.Code)
}

func TestSetupOfAWrappedConsumerTakesItsTopicFromTheBase(t *testing.T) {
	client := pulsartest.NewServer(t).Client(t)
	inner, err := client.Subscribe(pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing",
		Type: pulsar.Shared})
	require.NoError(t, err)
	c, err := redelivery.Wrap(inner, redelivery.WithLogger(slog.New(slog.DiscardHandler)),
		redelivery.WithNackRedeliveryDelay(time.Second))
	require.NoError(t, err)
	defer c.Close()
	found := doctor.Examine(t.Context(),
		service.Setups(c, nil, doctor.Setup{Admin: doctor.Admin{URL: "http://127.0.0.1:1"}})[0])
	require.Equal(t, "topic", found[0].Check)
	require.Equal(t, doctor.Unknown, found[0].Status)
	require.Equal(t, doctor.Unknown, doctor.Worst(found), "%+v", found)
	setups := service.Setups(c, nil, doctor.Setup{Topic: "orders"})
	require.Len(t, setups, 1)
	require.Equal(t, "orders", setups[0].Topic)
	require.Equal(t, "billing", setups[0].Subscription)
	require.Empty(t, setups[0].Type)
	require.Nil(t, setups[0].Consumer.BatchIndexAcknowledgment)
	require.Equal(t, time.Second, setups[0].Policy.Nack.Next(0))
}

func TestSetupOfAConsumerThatDiscardsHasNoDeadLetterTopic(t *testing.T) {
	client := pulsartest.NewServer(t).Client(t)
	c, err := redelivery.Subscribe(client, pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing",
		Type: pulsar.Shared, RetryEnable: true}, redelivery.WithLogger(slog.New(slog.DiscardHandler)),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 5, Discard: true}))
	require.NoError(t, err)
	defer c.Close()
	require.Empty(t, service.Setups(c, nil, doctor.Setup{})[0].DeadLetterTopic)
}
