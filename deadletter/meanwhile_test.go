package deadletter_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

// lateClient calls other before a call of Subscribe. Of a replay or a purge, the first call locks the journal.
type lateClient struct {
	pulsar.Client
	before int // number of the call
	other  func()
	calls  int
}

func (c *lateClient) Subscribe(o pulsar.ConsumerOptions) (pulsar.Consumer, error) {
	c.calls++
	if c.calls == c.before {
		c.other()
	}
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
			late := &lateClient{Client: b.client, before: 1, other: func() { c.other(t, b.open(tp.dlq)) }}
			d, err := deadletter.Open(late, deadletter.Options{Topic: tp.dlq, Admin: deadletter.Admin{URL: b.admin}})
			require.NoError(t, err)
			c.call(t, d)
			require.Equal(t, 3, b.backlog(tp.dlq, own))
		})
	}
}

// The first replay has created the subscription, finds no letter, and removes the subscription. The second begins just
// before.
func TestSubscriptionStaysForReplayThatBeginsWhileAnotherEnds(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(4)...)
	outcome := make(chan error, 1)
	late := &lateClient{Client: b.client, before: 4, other: func() {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, err := b.open(tp.dlq).Replay(bg, deadletter.ReplayOptions{Max: 1})
			outcome <- err
		}()
		select { // the second replay may wait for the end of the first
		case <-ended:
		case <-time.After(time.Second):
		}
	}}
	d, err := deadletter.Open(late, deadletter.Options{Topic: tp.dlq, Admin: deadletter.Admin{URL: b.admin}})
	require.NoError(t, err)
	_, err = d.Replay(bg, deadletter.ReplayOptions{Filter: deadletter.Filter{IDs: []string{"9:9:9"}}})
	require.NoError(t, err)
	require.Equal(t, late.before, late.calls, "removing the subscription is not the last call of Subscribe")
	require.NoError(t, <-outcome)
	require.Equal(t, 3, b.backlog(tp.dlq, own))
}
