package attempts

import (
	"errors"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

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

// silent is a reader whose broker does not answer at first.
type silent struct {
	pulsar.Reader
	err error
}

func (silent) HasNext() bool { return false }

func (s silent) GetLastMessageID() (pulsar.MessageID, error) {
	return pulsar.NewMessageID(1, 5, -1, -1), s.err
}

// HasNext returns false if the broker does not answer. Then a log would look as if it was read to its end.
func TestLogIsNotAtItsEndBecauseTheBrokerIsSilent(t *testing.T) {
	t.Parallel()
	_, err := hasMore(t.Context(), silent{err: errors.New("request timed out")}, position{1, 4})
	require.ErrorContains(t, err, "request timed out")
	more, err := hasMore(t.Context(), silent{}, position{1, 4})
	require.NoError(t, err)
	require.True(t, more)
	more, err = hasMore(t.Context(), silent{}, position{1, 5})
	require.NoError(t, err)
	require.False(t, more)
}
