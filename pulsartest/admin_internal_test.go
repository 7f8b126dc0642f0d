package pulsartest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

// The positions are those that Pulsar 4.0.7 shows after the same calls, except for the numbers of the ledgers.
func TestInternalStatsHavePulsarsPositions(t *testing.T) {
	t.Parallel()
	s := NewServer(t, WithBatchIndexAcknowledgment())
	c := s.Client(t)
	const topic = "persistent://public/default/t"
	stats := func() (all struct {
		NumberOfEntries    int
		LastConfirmedEntry string
		Ledgers            []struct{ LedgerID, Entries int }
		Cursors            map[string]struct{ MarkDeletePosition, ReadPosition, IndividuallyDeletedMessages string }
	}) {
		require.NoError(t, admin.Call(t.Context(), s.AdminURL(), http.MethodGet, topic+"/internalStats", nil, &all))
		return all
	}
	cursor := func(name string) string { // ledger A is the first, B the second
		all := stats()
		require.Contains(t, all.Cursors, name)
		k := all.Cursors[name]
		text := k.MarkDeletePosition + " " + k.ReadPosition + " " + k.IndividuallyDeletedMessages
		for i, l := range all.Ledgers {
			text = strings.ReplaceAll(text, fmt.Sprint(l.LedgerID, ":"), string(rune('A'+i))+":")
		}
		return text
	}
	join := func(name string, from pulsar.SubscriptionInitialPosition) pulsar.Consumer {
		return subscribe(t, c, pulsar.ConsumerOptions{Topic: topic, SubscriptionName: name, Type: pulsar.Shared,
			AckWithResponse:                true,
			EnableBatchIndexAcknowledgment: true, SubscriptionInitialPosition: from})
	}
	ack := func(k pulsar.Consumer, which string) {
		for _, x := range which {
			if m := receive(t, k); x == 'x' {
				require.NoError(t, k.Ack(m))
			}
		}
	}

	k := join("a ~*/ü", pulsar.SubscriptionPositionEarliest)
	const name = "a+%7E*%2F%C3%BC" // as Java's URLEncoder writes it
	require.Equal(t, "A:-1 A:0 []", cursor(name))
	for range 8 {
		s.Publish(t, topic, &pulsar.ProducerMessage{})
	}
	join("late", pulsar.SubscriptionPositionLatest).Close()
	join("early", pulsar.SubscriptionPositionEarliest).Close()
	ack(k, "xx.xx.x.")
	require.Equal(t, "A:1 A:8 [(A:2..A:4],(A:5..A:6]]", cursor(name))
	p := newProducer(t, c, pulsar.ProducerOptions{Topic: topic, BatchingMaxMessages: 4,
		BatchingMaxPublishDelay: time.Minute})
	for range 8 {
		p.SendAsync(t.Context(), &pulsar.ProducerMessage{}, func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
	}
	require.NoError(t, p.FlushWithCtx(t.Context()))
	ack(k, "x..x"+"xxxx") // a partly acknowledged batch is not listed
	require.Equal(t, "A:1 A:10 [(A:2..A:4],(A:5..A:6],(A:8..A:9]]", cursor(name))
	k.Close()

	s.Unload(topic)
	require.Equal(t, "A:1 A:2 [(A:2..A:4],(A:5..A:6],(A:8..A:9]]", cursor(name))
	for range 3 {
		s.Publish(t, topic, &pulsar.ProducerMessage{})
	}
	k = join("a ~*/ü", pulsar.SubscriptionPositionEarliest)
	ack(k, "xxx"+"...."+"xx.") // acknowledges 2, 5 and 7, nothing of batch 8, and the first two entries of ledger B
	require.Equal(t, "A:7 B:3 [(A:8..A:9],(B:-1..B:1]]", cursor(name))
	require.Equal(t, "A:7 A:8 []", cursor("late"))
	require.Equal(t, "A:-1 A:0 []", cursor("early"))
	all := stats()
	require.Equal(t, 13, all.NumberOfEntries)
	require.Equal(t, fmt.Sprint(all.Ledgers[1].LedgerID, ":2"), all.LastConfirmedEntry)
	require.Equal(t, 10, all.Ledgers[0].Entries)
	require.Zero(t, all.Ledgers[1].Entries, "entries of the current ledger were counted before it ended")

	require.NoError(t, s.CreatePartitionedTopic("p", 2))
	for path, status := range map[string]int{"nothing": 404, "p": 404, "p-partition-0": 200, "p-partition-7": 404} {
		resp, err := http.Get(s.AdminURL() + "/admin/v2/persistent/public/default/" + path + "/internalStats")
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, status, resp.StatusCode, path)
	}
}
