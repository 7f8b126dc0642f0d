package upstream_test

import (
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/upstream"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

func TestCheckIDRefusesEmptyIDs(t *testing.T) {
	for _, c := range []struct {
		name string
		id   pulsar.MessageID
		want string // in the error; "" for none
	}{
		{"a message's", pulsar.NewMessageID(1, 2, 3, 4), ""},
		{"the application's", idOf(1, 2), ""},
		{"nil", nil, "message id is nil"},
		{"one that embeds nil", id{}, "message id is an empty upstream_test.id"},
		{"a nil pointer", (*id)(nil), "message id is an empty *upstream_test.id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := upstream.CheckID(c.id)
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}

func TestIsMessageIDIsTrueForIDsOfMessagesOnly(t *testing.T) {
	broker := pulsartest.NewServer(t)
	client := broker.Client(t)
	consumer := subscribe(t, client, newHooks(), pulsar.ConsumerOptions{Topic: "t"}, upstream.Plan{Channel: 10})
	publishBatch(t, client, "t", 2)
	received := waittest.Next(t, consumer.Chan()).ID()
	last, err := consumer.GetLastMessageIDs()
	require.NoError(t, err)
	restored, err := pulsar.DeserializeMessageID(received.Serialize())
	require.NoError(t, err)
	for _, c := range []struct {
		name string
		id   pulsar.MessageID
		want bool
	}{
		{"of a message that was received", received, true},
		{"made", pulsar.NewMessageID(1, 2, 3, 4), true},
		{"restored", restored, true},
		{"of the whole entry", upstream.Whole(received), true},
		{"of GetLastMessageIDs", last[0], false},
		{"the application's", idOf(1, 2), false},
		{"the application's, a pointer", &id{received, 2}, false},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, upstream.IsMessageID(c.id)) })
	}
}

func TestHasTransactionsIsFalseForClientsWithoutThem(t *testing.T) {
	require.False(t, upstream.HasTransactions(nil))
	require.False(t, upstream.HasTransactions(struct{ pulsar.Client }{}), "true for a client of the application")
	require.False(t, upstream.HasTransactions(&struct{ pulsar.Client }{}), "true for a pointer to such a client")
	require.False(t, upstream.HasTransactions(pulsartest.NewServer(t).Client(t)))
}

func TestWholeAndIndexOfEachKindOfID(t *testing.T) {
	for _, c := range []struct {
		name        string
		id          pulsar.MessageID
		whole, same bool // same: Whole returns the id itself
		index       int32
	}{
		{name: "of no batch", id: idOf(-1, 0), same: true, index: 0},
		{name: "a batch of one", id: idOf(0, 1), same: true, index: 0},
		{name: "the first of a batch", id: idOf(0, 3), index: 0},
		{name: "the last of a batch", id: idOf(2, 3), index: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.index, upstream.Index(c.id))
			whole := upstream.Whole(c.id)
			if c.same {
				require.Equal(t, c.id, whole)
				return
			}
			require.Equal(t, pulsar.NewMessageID(7, 8, -1, 9).Serialize(), whole.Serialize())
			require.EqualValues(t, -1, whole.BatchIdx())
		})
	}
}

// One acknowledgement with the id of Whole acknowledges all messages of a batch, even if none was acknowledged before.
func TestWholeAcknowledgesTheEntry(t *testing.T) {
	broker := pulsartest.NewServer(t)
	client := broker.Client(t)
	consumer := subscribe(t, client, newHooks(),
		pulsar.ConsumerOptions{Topic: "t", Type: pulsar.Shared, AckWithResponse: true},
		upstream.Plan{Channel: 10})
	publishBatch(t, client, "t", 3)
	require.NoError(t, consumer.AckID(upstream.Whole(waittest.Next(t, consumer.Chan()).ID())))
	broker.Await(t, "t", "s", waittest.Limit, func(s pulsartest.Subscription) bool { return s.Backlog == 0 })
}

func TestMessagesHasTheTypeOfTheFirstMessage(t *testing.T) {
	type wrapper struct{ pulsar.Message }
	var m upstream.Messages
	own := &message{}
	require.False(t, m.Has(own), "the type is known though no message was delivered")
	m.Note(own)
	m.Note(wrapper{own})
	require.True(t, m.Has(&message{}))
	require.False(t, m.Has(wrapper{own}))
}

func TestWeighCountsEachPartOfAMessage(t *testing.T) {
	const overhead, property = 512, 48
	for _, c := range []struct {
		name         string
		msg          pulsar.Message
		size, buffer int64
	}{
		{"empty", &message{id: idOf(-1, 0)}, overhead, 0},
		{"a payload", &message{id: idOf(-1, 0), payload: make([]byte, 10, 100)}, overhead + 100, 0},
		{"keys", &message{id: idOf(-1, 0), key: "12", ordering: "123"}, overhead + 5, 0},
		{"properties", &message{id: idOf(-1, 0), properties: map[string]string{"k": "value", "l": "v"}},
			overhead + 8 + 2*property, 0},
		{"a batch of one", &message{id: idOf(0, 1), payload: make([]byte, 100)}, overhead + 100, 0},
		{"the first of a batch", &message{id: idOf(0, 4), key: "k", payload: make([]byte, 10, 400)}, overhead + 1, 400},
		{"the last of a batch", &message{id: idOf(3, 4), payload: make([]byte, 10, 100)}, overhead, 400},
		{"an index beyond the size", &message{id: idOf(9, 4), payload: make([]byte, 100)}, overhead, 400},
		{"one that embeds nil", struct{ pulsar.Message }{}, overhead, 0},
		{"one without an id", &message{payload: make([]byte, 10), properties: map[string]string{"k": "v"}},
			overhead + 2 + property, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			size, buffer := upstream.Weigh(c.msg)
			require.Equal(t, c.size, size)
			require.Equal(t, c.buffer, buffer)
		})
	}
}

// Any message of a batch keeps the whole buffer in memory.
func TestWeighFindsTheBufferOfABatch(t *testing.T) {
	const n = 10
	broker := pulsartest.NewServer(t)
	client := broker.Client(t)
	consumer := subscribe(t, client, newHooks(), pulsar.ConsumerOptions{Topic: "t"}, upstream.Plan{Channel: n})
	publishBatch(t, client, "t", n)
	for i := range n {
		_, buffer := upstream.Weigh(waittest.Next(t, consumer.Chan()).Message)
		require.InEpsilon(t, n*1000, buffer, 0.1, "message %d of %d", i, n)
	}
}
