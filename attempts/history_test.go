package attempts

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
