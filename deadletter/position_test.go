package deadletter_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

// A later call does not wait for letters that were replayed or purged.
func TestAcknowledgedLettersAreGone(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	for _, partitions := range []int{0, 2} {
		for _, batch := range []int{1, 4} {
			tp := b.topics(partitions)
			b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, batch, tp.letters(24)...)
			d := b.open(tp.dlq)
			ctx, cancel := context.WithTimeout(bg, time.Minute)
			defer cancel()
			for _, want := range []int{16, 8, 0} {
				report, err := d.Replay(ctx, deadletter.ReplayOptions{Max: 8})
				require.NoError(t, err)
				require.Equal(t, min(want+8, 24)-want, report.Done)
				require.Len(t, peek(t, d), want)
				plan, err := d.Replay(ctx, dry(deadletter.ReplayOptions{}))
				require.NoError(t, err)
				require.Equal(t, want, plan.Done)
			}
			for range 2 {
				report, err := d.Replay(ctx, deadletter.ReplayOptions{Canary: 2})
				require.NoError(t, err)
				require.Zero(t, report.Done)
			}
			report, err := d.Purge(ctx, deadletter.PurgeOptions{Export: io.Discard})
			require.NoError(t, err)
			require.Zero(t, report.Seen)
		}
	}
}

// Without internalStats it is unknown which letters are acknowledged.
func TestCallWithoutInternalStatsReturnsAnError(t *testing.T) {
	t.Parallel()
	b := newInProcess(t)
	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(3)...)
	url := b.adminBut("/internalStats", http.NotFound)
	blind := b.open(tp.dlq, func(o *deadletter.Options) { o.Admin.URL = url })
	require.Len(t, peek(t, blind), 3, "Peek hides stored letters although the subscription does not exist")
	_, err := b.open(tp.dlq).Replay(bg, deadletter.ReplayOptions{})
	require.NoError(t, err)
	_, planned := blind.Replay(bg, dry(deadletter.ReplayOptions{}))
	_, replayed := blind.Replay(bg, deadletter.ReplayOptions{})
	_, purged := blind.Purge(bg, deadletter.PurgeOptions{Export: io.Discard})
	for _, err := range []error{planned, replayed, purged} {
		require.ErrorContains(t, err, "the acknowledgements of subscription redelivery of "+tp.dlq+" are not known: "+
			"the admin API at "+url+" has no internalStats")
	}
}
