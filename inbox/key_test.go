package inbox_test

import (
	"context"
	"database/sql"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/inbox"
)

func TestKeyOfFirstMessageIsItsTopicAndID(t *testing.T) {
	for want, m := range map[string]message{
		topic + " 1:2:0:0": {topic: topic, id: pulsar.NewMessageID(1, 2, 0, 0)},
		topic + " 1:2:0":   {topic: topic, id: pulsar.NewMessageID(1, 2, -1, 0)},
		topic + " 1:2:3:4": {topic: topic + "-partition-3", id: pulsar.NewMessageID(1, 2, 4, 0)},
		topic + " 1:2:5:6": {topic: topic + "-partition-5", id: pulsar.NewMessageID(1, 2, 6, 5)},
	} {
		require.Equal(t, want, inbox.Key(m))
	}
}

func TestRetryAndReplayHaveTheKeyOfTheFirstMessage(t *testing.T) {
	retry := map[string]string{"REAL_TOPIC": topic, "REAL_SUBSCRIPTION": "billing",
		"ORIGIN_MESSAGE_IDY_TIME": "1:2:3:4", "RECONSUMETIMES": "1"}
	replay := map[string]string{"REAL_TOPIC": "orders", "REAL_SUBSCRIPTION": "billing",
		"ORIGIN_MESSAGE_IDY_TIME": "1:2:3:4"}
	replayTo := func(topic string) map[string]string {
		props := maps.Clone(replay)
		props["REPLAY_RUN"], props["REPLAY_TOPIC"] = "r", topic
		return props
	}
	const other = "persistent://public/default/repaired"
	id := pulsar.NewMessageID(9, 9, 0, 0)
	for name, m := range map[string]message{
		"retry":                     {topic: topic + "-billing-RETRY", id: id, props: retry},
		"retry of a partition":      {topic: topic + "-billing-RETRY-partition-1", id: id, props: retry},
		"retry of several topics":   {topic: "persistent://public/default/another-billing-RETRY", id: id, props: retry},
		"replay to the topic":       {topic: topic + "-partition-3", id: id, props: replayTo(topic)},
		"replay to the retry topic": {topic: topic + "-billing-RETRY", id: id, props: replayTo(topic + "-billing-RETRY")},
		"replay to another topic":   {topic: other + "-partition-1", id: id, props: replayTo(other)},
		"retry of a replay":         {topic: topic + "-billing-RETRY", id: id, props: replayTo(topic)},
	} {
		require.Equal(t, topic+" 1:2:3:4", inbox.Key(m), name)
	}
}

func TestKeyInRetryTopicWithAnotherNameNeedsWithRetryTopic(t *testing.T) {
	m := message{topic: "persistent://public/default/later-partition-1", id: pulsar.NewMessageID(9, 9, 0, 1),
		props: map[string]string{"REAL_TOPIC": topic, "REAL_SUBSCRIPTION": "billing",
			"ORIGIN_MESSAGE_IDY_TIME": "1:2:3:4"}}
	require.Equal(t, "persistent://public/default/later 9:9:1:0", inbox.Key(m))
	box, err := inbox.New(&sql.DB{}, inbox.SQLite, inbox.WithRetryTopic("later"))
	require.NoError(t, err)
	require.Equal(t, topic+" 1:2:3:4", box.Key(m))
}

// A message is a new message if a service forwards it with all its properties, or if its producer sets only some of the
// properties of a replay.
func TestForwardedMessageHasAKeyOfItsOwn(t *testing.T) {
	props := map[string]string{"REAL_TOPIC": topic, "REAL_SUBSCRIPTION": "billing",
		"ORIGIN_MESSAGE_IDY_TIME": "1:2:3:4", "REPLAY_RUN": "r", "REPLAY_TOPIC": topic}
	expectOwnKey := func(topic string, props map[string]string) {
		t.Helper()
		require.Equal(t, topic+" 9:9:0:0",
			inbox.Key(message{topic: topic, id: pulsar.NewMessageID(9, 9, 0, 0), props: props}))
	}
	expectOwnKey("persistent://public/default/ship", props)
	expectOwnKey("persistent://public/default/ship-packing-RETRY", props)
	expectOwnKey(topic+"-billing-DLQ", props)
	for name, value := range map[string]string{"REPLAY_TOPIC": topic + "2", "REPLAY_RUN": "", "REAL_TOPIC": "",
		"ORIGIN_MESSAGE_IDY_TIME": ""} {
		forged := maps.Clone(props)
		forged[name] = value
		expectOwnKey(topic, forged)
	}
	delete(props, "REPLAY_TOPIC")
	expectOwnKey(topic, props)
}

// A release with other receipts would not find those of the release before: effects would happen again.
func TestReceiptsStayTheSameOverReleases(t *testing.T) {
	db := open(t, inbox.SQLite, "sqlite", "file:"+filepath.Join(t.TempDir(), "db"))
	for want, m := range map[string]message{
		"9771D63DCA5950DAF472E3D594C49AD4": {topic: topic, id: pulsar.NewMessageID(123, 45678, -1, 0)},
		"9771D63D4A02AF37E383333465BD7BD3": {topic: topic + "-partition-3", id: pulsar.NewMessageID(123, 45678, 9, 3)},
		"875214FB924E1638E05B048A94DAAB6E": {props: map[string]string{"order": "ü 7:8:9"}},
	} {
		box := db.newBox(t, inbox.WithKey(func(msg pulsar.Message) string { return msg.Properties()["order"] }))
		require.NoError(t, db.handler(box)(t.Context(), m))
		var receipt string
		require.NoError(t, db.QueryRowContext(t.Context(),
			"DELETE FROM redelivery_inbox RETURNING hex(receipt)").Scan(&receipt))
		require.Equal(t, want, receipt)
	}
}

// Receipts of messages that were published one after the other have a common prefix, so they are neighbors in the
// index.
func TestReceiptsOfConsecutiveMessagesAreNeighbors(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, db database) {
		box := db.newBox(t)
		for _, m := range []message{
			{topic: topic, id: pulsar.NewMessageID(1, 2, 0, 0)}, {topic: topic, id: pulsar.NewMessageID(1, 2, 1, 0)},
			{topic: topic, id: pulsar.NewMessageID(1, 999, -1, 0)},
			{topic: topic, id: pulsar.NewMessageID(1, 1000, -1, 0)},
			{topic: topic + "2", id: pulsar.NewMessageID(1, 2, 0, 0)},
		} {
			require.NoError(t, box.Handler(func(context.Context, *sql.Tx,
				pulsar.Message) error {
				return nil
			})(t.Context(), m))
		}
		rows, err := db.QueryContext(t.Context(), "SELECT receipt FROM redelivery_inbox")
		require.NoError(t, err)
		receipts, neighborhoods := map[string]bool{}, map[string]int{}
		for rows.Next() {
			var receipt []byte
			require.NoError(t, rows.Scan(&receipt))
			receipts[string(receipt)] = true
			neighborhoods[string(receipt[:4])]++
		}
		require.NoError(t, rows.Err())
		require.NoError(t, rows.Close())
		require.Len(t, receipts, 5)
		require.ElementsMatch(t, []int{3, 1, 1}, slices.Collect(maps.Values(neighborhoods)))
	})
}
