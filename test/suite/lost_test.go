package suite

import (
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
)

// losses are what an observer is told of them.
type losses struct {
	mu   sync.Mutex
	told []redelivery.Lost
}

func (l *losses) observer() redelivery.Option {
	return redelivery.WithObserver(redelivery.Observer{Lost: func(e redelivery.Lost) {
		l.mu.Lock()
		defer l.mu.Unlock()
		e.Consumer = nil
		l.told = append(l.told, e)
	}})
}

func (l *losses) all() []redelivery.Lost {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]redelivery.Lost(nil), l.told...)
}

// isNow waits for what Reclaim says in the end.
func isNow(t *testing.T, c *redelivery.Consumer, msg pulsar.Message, want error) {
	t.Helper()
	require.Eventually(t, func() bool {
		ours, err := c.Reclaim(msg)
		if want != nil {
			require.False(t, ours)
			return err != nil
		}
		require.NoError(t, err)
		return ours
	}, 20*time.Second, 50*time.Millisecond)
	_, err := c.Reclaim(msg)
	require.ErrorIs(t, err, want)
}

// A sole consumer gets what it had again after an unload, and it is this consumer's. When it is closed, all is lost.
func TestWhatAnUnloadLosesComesAgain(t *testing.T) {
	t.Parallel()
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			b, l := newBroker(t), &losses{}
			topic := b.topic(0)
			c := b.subscribe(b.options(topic, kind), l.observer())
			b.send(topic, 1, false)
			msg := receive(t, c)
			ours, err := c.Reclaim(msg)
			require.NoError(t, err)
			require.True(t, ours)
			next := c.NextLoss()
			go func() { _, _ = c.Receive(t.Context()) }() // or nobody takes what comes again
			b.unload(topic)
			<-next
			isNow(t, c, msg, nil)
			d, err := c.Delivery(msg)
			require.NoError(t, err)
			require.False(t, d.Lost)
			require.NoError(t, c.Ack(msg))
			isNow(t, c, msg, redelivery.ErrNotInFlight)
			next = c.NextLoss()
			c.Close()
			<-next
			_, err = c.Reclaim(msg)
			require.ErrorIs(t, err, redelivery.ErrClosed)
			told := l.all()
			require.Equal(t, redelivery.Lost{Subscription: sub, Why: redelivery.LostConnection}, told[0])
			require.Equal(t, redelivery.Lost{Subscription: sub, Why: redelivery.LostConsumer}, told[len(told)-1])
		})
	}
}
