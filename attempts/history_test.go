package attempts

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/upstream"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

func TestHistoryHasEachFailureWithItsSession(t *testing.T) {
	t.Parallel()
	client, topic := testClient(t), testTopic(t)
	a := openReady(t, client, topic, "a")
	a.Failed(one, 1, time.Minute, "no milk")
	a.Failed(two, 1, time.Minute, "no sugar")
	require.NoError(t, a.Flush(t.Context()))
	b := openReady(t, client, topic, "b")
	b.Failed(one, 2, time.Hour, "no coffee")
	require.NoError(t, b.Flush(t.Context()))
	require.NoError(t, b.Forget(t.Context(), one))
	all, err := History(t.Context(), client, topic, func(k Key) bool { return k == one })
	require.NoError(t, err)
	require.Len(t, all, 3)
	for i, want := range []struct {
		name, cause string
		delay       time.Duration
	}{{"a", "no milk", time.Minute}, {"b", "no coffee", time.Hour}} {
		require.Equal(t, want.name, all[i].Name)
		require.Equal(t, want.cause, all[i].Cause)
		require.EqualValues(t, i+1, all[i].Count)
		require.InDelta(t, want.delay.Seconds(), all[i].Due.Sub(all[i].Written).Seconds(), 1)
		require.WithinDuration(t, time.Now(), all[i].Written, time.Minute)
	}
	require.True(t, all[2].Settled)
}

func TestHistoryOfAPartitionedLogIsThatOfItsFirstPartition(t *testing.T) {
	t.Parallel()
	server, topic := pulsartest.NewServer(t), testTopic(t)
	require.NoError(t, server.CreatePartitionedTopic(topic, 2))
	client := server.Client(t)
	a := openReady(t, client, topic, "a")
	a.Failed(one, 1, time.Minute, "no milk")
	require.NoError(t, a.Flush(t.Context()))
	all, err := History(t.Context(), client, topic, func(Key) bool { return true })
	require.NoError(t, err)
	require.Len(t, all, 1)
}

// The connection is lost while History asks for the last message, and the broker does not come back in time.
func TestHistoryEndsWithItsContextWhileTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	server, topic := pulsartest.NewServer(t), testTopic(t)
	client := server.Client(t)
	require.NoError(t, openReady(t, client, topic, "a").Forget(t.Context(), one))
	ctx, cancel := context.WithCancel(t.Context())
	server.SetHook(func(c pulsartest.Command) pulsartest.Verdict {
		if c.Type == "GET_LAST_MESSAGE_ID" {
			server.RefuseConnections(true)
			time.AfterFunc(time.Second, cancel) // by then the request waits in pulsar-client-go, which reconnects
			return pulsartest.Disconnect
		}
		return pulsartest.Pass
	})
	ended := make(chan error, 1)
	go func() {
		_, err := History(ctx, client, topic, func(Key) bool { return true })
		ended <- err
	}()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(20 * time.Second):
		require.Fail(t, "History has not returned")
	}
	server.SetHook(nil)
	server.RefuseConnections(false)
}

// A request may fail because the broker is away. Then the log must not look as if it was read to its end.
func TestEndOfALogIsKnownOnlyWhenTheBrokerAnswers(t *testing.T) {
	t.Parallel()
	r := &upstream.TopicReader{Reader: answering{err: errors.New("request timed out")}}
	_, err := endAfter(t.Context(), r, position{1, 4}, position{1, 4})
	require.ErrorContains(t, err, "request timed out")
	end, err := endAfter(t.Context(), r, position{1, 3}, position{1, 4})
	require.NoError(t, err)
	require.Equal(t, position{1, 4}, end)
	r = &upstream.TopicReader{Reader: answering{entry: 5}}
	end, err = endAfter(t.Context(), r, position{1, 4}, position{1, 4})
	require.NoError(t, err)
	require.Equal(t, position{1, 5}, end)
	r = &upstream.TopicReader{Reader: answering{entry: -1}}
	end, err = endAfter(t.Context(), r, position{}, position{})
	require.NoError(t, err)
	require.Zero(t, end, "of an empty topic")
}

// answering is a reader whose broker answers each request with an entry or an error.
type answering struct {
	pulsar.Reader
	entry int64
	err   error
}

func (a answering) GetLastMessageID() (pulsar.MessageID, error) {
	return pulsar.NewMessageID(1, a.entry, -1, -1), a.err
}
