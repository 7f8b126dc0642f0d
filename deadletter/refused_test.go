package deadletter_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

// The refused replay is tried several times.
func TestRefusedReplayKeepsTheUnfinishedRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		o    deadletter.ReplayOptions
		want error
	}{
		"other options": {deadletter.ReplayOptions{}, deadletter.ErrUnfinished},
		"New, to a missing topic": {deadletter.ReplayOptions{New: true, Topic: "persistent://public/default/gone"},
			deadletter.ErrNoTopic},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			tp := b.topics(0)
			b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(60)...)
			d := b.open(tp.dlq)
			filtered := deadletter.ReplayOptions{Filter: deadletter.Filter{Properties: map[string]string{"traceparent": tp.letter(0).Properties["traceparent"]}}}
			interrupted := filtered
			ctx, cancel := context.WithCancel(bg)
			interrupted.Rate, interrupted.Progress = 100, func(r deadletter.Report) {
				if r.Done > 5 {
					cancel()
				}
			}
			first, err := d.Replay(ctx, interrupted)
			require.ErrorIs(t, err, context.Canceled)
			for range 3 {
				_, err = d.Replay(bg, c.o)
				require.ErrorIs(t, err, c.want)
			}
			last, err := d.Replay(bg, filtered)
			require.NoError(t, err)
			require.True(t, last.Resumed)
			require.Equal(t, first.Run, last.Run)
			require.Equal(t, 60, first.Done+last.Done)
		})
	}
}

// There is no subscription that keeps letters, and no journal.
func TestRefusedCallsLeaveNothing(t *testing.T) {
	t.Parallel()
	failing := strings.NewReader("no letter\n")
	for name, call := range map[string]func(*deadletter.Topic) error{
		"a purge whose writer fails": func(d *deadletter.Topic) error {
			_, err := d.Purge(bg, deadletter.PurgeOptions{Export: noRoom{}})
			return err
		},
		"an import of no letters": func(d *deadletter.Topic) error {
			_, err := d.Import(bg, failing, deadletter.ImportOptions{})
			return err
		},
		"a replay to a missing topic": func(d *deadletter.Topic) error {
			_, err := d.Replay(bg, deadletter.ReplayOptions{Topic: "persistent://public/default/gone"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			tp := b.topics(0)
			b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(3)...)
			require.Error(t, call(b.open(tp.dlq)))
			require.Equal(t, -1, b.backlog(tp.dlq, own), "the failed call left a subscription, which keeps letters")
			b.noJournal(tp)
		})
	}
	t.Run("an unsubscribe while the subscription is consumed", func(t *testing.T) {
		t.Parallel()
		b := newBroker(t)
		tp := b.topics(0)
		c := b.subscribe(tp.dlq, own)
		defer c.Close()
		require.ErrorIs(t, b.open(tp.dlq).Unsubscribe(bg), deadletter.ErrBusy)
		b.noJournal(tp)
	})
}

// noJournal fails the test if a journal of the dead letter topic keeps anything.
func (b *broker) noJournal(tp topics) {
	b.t.Helper()
	var all []string
	b.callAdmin("GET", "persistent://"+b.namespace, nil, &all)
	for _, topic := range all {
		if strings.HasPrefix(topic, tp.dlq+"-") && !strings.HasPrefix(topic, tp.dlq+"-partition-") {
			var names []string
			b.callAdmin("GET", topic+"/subscriptions", nil, &names)
			require.Empty(b.t, names, topic)
		}
	}
}

// noRoom is a writer that returns an error like that of a full disk.
type noRoom struct{}

func (noRoom) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
