package deadletter_test

import (
	"strings"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

// Afterwards no subscription keeps letters, and there is no unfinished run because of which Replay would refuse other
// options.
func TestReplayThatPublishedNothingChangesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(b *broker, tp topics)
		o     deadletter.ReplayOptions
		want  error
		says  string
	}{
		"no retry topic": {want: deadletter.ErrNoTopic, says: "replayed to the topic that they came from",
			spoil: func(b *broker, tp topics) { b.callAdmin("DELETE", tp.retry+"?force=true", nil, nil) }},
		"no retry topic, canary": {want: deadletter.ErrNoTopic, o: deadletter.ReplayOptions{Canary: 1},
			spoil: func(b *broker, tp topics) { b.callAdmin("DELETE", tp.retry+"?force=true", nil, nil) }},
		"retry topic without a subscription": {want: deadletter.ErrNoSubscription,
			spoil: func(b *broker, tp topics) { b.callAdmin("DELETE", tp.retry+"/subscription/"+sub, nil, nil) }},
		"origin without a subscription": {want: deadletter.ErrNoSubscription,
			o:     deadletter.ReplayOptions{ToOrigin: true},
			spoil: func(b *broker, tp topics) { b.callAdmin("DELETE", tp.origin+"/subscription/"+sub, nil, nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			tp := b.topics(0)
			b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(4)...)
			c.spoil(b, tp)
			d := b.open(tp.dlq)
			_, err := d.Replay(bg, c.o)
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, -1, b.backlog(tp.dlq, own), "the replay left a subscription, which keeps letters")
			var all []string
			b.callAdmin("GET", "persistent://"+b.namespace, nil, &all)
			for _, topic := range all {
				if strings.HasPrefix(topic, tp.dlq+"-") {
					var names []string
					b.callAdmin("GET", topic+"/subscriptions", nil, &names)
					require.Empty(t, names, topic)
				}
			}
			b.subscribe(tp.origin, sub).Close()
			report, err := d.Replay(bg, deadletter.ReplayOptions{ToOrigin: true, Max: 3})
			require.NoError(t, err)
			require.Equal(t, 3, report.Done)
			require.False(t, report.Resumed)
		})
	}
}

func TestReplayOfAnEmptyTopicChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	_, err := b.open(tp.dlq).Replay(bg, deadletter.ReplayOptions{})
	require.NoError(t, err)
	require.Equal(t, -1, b.backlog(tp.dlq, own), "the replay of an empty topic left a subscription")
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(4)...)
	d := b.open(tp.dlq)
	none := deadletter.ReplayOptions{Filter: deadletter.Filter{IDs: []string{"9:9:9"}}}
	report, err := d.Replay(bg, none)
	require.NoError(t, err)
	require.Zero(t, report.Done)
	require.Equal(t, -1, b.backlog(tp.dlq, own), "the replay left a subscription, which keeps letters")
	_, err = d.Replay(bg, deadletter.ReplayOptions{Max: 1})
	require.NoError(t, err)
	_, err = d.Replay(bg, none)
	require.NoError(t, err)
	require.Equal(t, 3, b.backlog(tp.dlq, own), "the subscription that was there before is gone")
}

// The subscription existed before the replay failed.
func TestReplayThatPublishedNothingKeepsTheSubscription(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(4)...)
	d := b.open(tp.dlq)
	_, err := d.Replay(bg, deadletter.ReplayOptions{Max: 1})
	require.NoError(t, err)
	b.callAdmin("DELETE", tp.retry+"?force=true", nil, nil)
	b.callAdmin("DELETE", tp.origin+"/subscription/"+sub, nil, nil)
	for _, o := range []deadletter.ReplayOptions{{}, {ToOrigin: true}} {
		_, err = d.Replay(bg, o)
		require.Error(t, err)
		require.Equal(t, 3, b.backlog(tp.dlq, own))
	}
	b.subscribe(tp.origin, sub).Close()
	report, err := d.Replay(bg, deadletter.ReplayOptions{ToOrigin: true, Max: 2})
	require.NoError(t, err)
	require.Equal(t, 2, report.Done)
	require.Equal(t, 1, b.backlog(tp.dlq, own))
}
