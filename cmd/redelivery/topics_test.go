package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

// list shows topics whose names end in -DLQ or -RETRY.
func TestListShowsOnlyDeadLetterAndRetryTopics(t *testing.T) {
	b := newBroker(t)
	require.NoError(t, b.server.CreatePartitionedTopic(origin+"-parts-DLQ", 2))
	b.publish(origin+"-parts-DLQ", &pulsar.ProducerMessage{Payload: []byte("x")})
	find := func() map[string]topicInfo {
		code, stdout, stderr := dlqRun("", "list", "-json")
		require.Zero(t, code, stderr)
		var all []topicInfo
		require.NoError(t, json.Unmarshal([]byte(stdout), &all))
		found := map[string]topicInfo{}
		for _, info := range all {
			found[info.Topic] = info
		}
		return found
	}
	require.NotContains(t, find(), origin)
	require.Empty(t, find()[origin+"-shipping-DLQ"].Subscriptions)
	require.Equal(t, 2, find()[origin+"-parts-DLQ"].Partitions)
	require.True(t, find()[origin+"-billing-RETRY"].Retry)
	for _, topic := range []string{origin + "-parts-DLQ", origin + "-billing-DLQ"} {
		code, _, stderr := dlqRun("", "replay", topic, "-topic", origin+"-billing-RETRY", "-yes", "-max", "20",
			"-subscription", "redelivery")
		require.Zero(t, code, stderr)
	}
	subscriptions := find()[origin+"-billing-DLQ"].Subscriptions
	require.Len(t, subscriptions, 2)
	require.Equal(t, "redelivery", subscriptions[1].Name)
	require.Equal(t, 100, subscriptions[1].Backlog)
	require.Equal(t, "redelivery", find()[origin+"-parts-DLQ"].Subscriptions[0].Name)
	require.NotContains(t, find(), origin+"-billing-DLQ-redelivery")
	code, stdout, stderr := dlqRun("", "groups", "orders-parts-DLQ")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "Letters that subscription redelivery has not acknowledged.")
}

func TestTopicWithAPlusIsNotConfusedWithOneWithABlank(t *testing.T) {
	server := inProcess(t)
	server.Publish(t, origin+" b-DLQ", &pulsar.ProducerMessage{})
	server.Publish(t, origin+"+b-DLQ", &pulsar.ProducerMessage{}, &pulsar.ProducerMessage{})
	client := server.Client(t)
	for _, topic := range []string{origin + " b-DLQ", origin + "+b-DLQ"} {
		consumer, err := client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "redelivery",
			SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
		require.NoError(t, err)
		consumer.Close()
	}
	code, stdout, stderr := dlqRun("", "list")
	require.Zero(t, code, stderr)
	require.Regexp(t, `orders b-DLQ\s.*redelivery\s+1 `, stdout)
	require.Regexp(t, `orders\+b-DLQ\s.*redelivery\s+2 `, stdout)
	_, stdout, _ = dlqRun("", "unsubscribe", "orders+b-DLQ")
	require.Contains(t, stdout, "keeps 2 entries")
}

// The admin API does not find the namespace, or refuses the request.
func TestListReportsErrorsOfTheAdminAPI(t *testing.T) {
	for want, status := range map[string]int{"403 Forbidden": http.StatusForbidden,
		"no such namespace: public/default": http.StatusNotFound} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
			_ *http.Request) {
			http.Error(w, "{}", status)
		}))
		code, stdout, stderr := dlqRun("", "list", "-admin-url", server.URL)
		server.Close()
		require.Equal(t, 1, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, want)
	}
}
