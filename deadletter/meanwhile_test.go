package deadletter_test

import (
	"context"
	"io"
	"sync"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

// lateClient calls other before the first call of Subscribe. That call locks the journal.
type lateClient struct {
	pulsar.Client
	once  sync.Once
	other func()
}

func (c *lateClient) Subscribe(o pulsar.ConsumerOptions) (pulsar.Consumer, error) {
	c.once.Do(c.other)
	return c.Client.Subscribe(o)
}

// Without the subscription, the next replay would publish all letters again.
func TestSubscriptionThatAnotherCallCreatedMeanwhileStays(t *testing.T) {
	t.Parallel()
	none := deadletter.Filter{IDs: []string{"9:9:9"}}
	first := func(t *testing.T, d *deadletter.Topic) {
		_, err := d.Replay(bg, deadletter.ReplayOptions{Max: 1})
		require.NoError(t, err)
	}
	for name, c := range map[string]struct {
		other, call func(t *testing.T, d *deadletter.Topic)
	}{
		"replay": {first, func(t *testing.T, d *deadletter.Topic) {
			_, err := d.Replay(bg, deadletter.ReplayOptions{Filter: none})
			require.NoError(t, err)
		}},
		"purge": {first, func(t *testing.T, d *deadletter.Topic) {
			_, err := d.Purge(bg, deadletter.PurgeOptions{Filter: none, Export: io.Discard})
			require.NoError(t, err)
		}},
		"replay beside an unfinished one": {func(t *testing.T, d *deadletter.Topic) {
			ctx, cancel := context.WithCancel(bg)
			defer cancel()
			_, err := d.Replay(ctx, deadletter.ReplayOptions{Rate: 5, Progress: func(r deadletter.Report) {
				if r.Done == 1 {
					cancel()
				}
			}})
			require.ErrorIs(t, err, context.Canceled)
		}, func(t *testing.T, d *deadletter.Topic) {
			_, err := d.Replay(bg, deadletter.ReplayOptions{Filter: none})
			require.ErrorIs(t, err, deadletter.ErrUnfinished)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			tp := b.topics(0)
			b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(4)...)
			late := &lateClient{Client: b.client, other: func() { c.other(t, b.open(tp.dlq)) }}
			d, err := deadletter.Open(late, deadletter.Options{Topic: tp.dlq, Admin: deadletter.Admin{URL: b.admin}})
			require.NoError(t, err)
			c.call(t, d)
			require.Equal(t, 3, b.backlog(tp.dlq, own))
		})
	}
}
