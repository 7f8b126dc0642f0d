package deadletter_test

import (
	"io"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

// No subscription and no journal is created.
func TestTopicThatIsNotForDeadLettersIsNotChanged(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	for name, c := range map[string]struct {
		suffix string
		change func(*pulsar.ProducerMessage)
		n      int
		want   string // "" for a dead letter topic
	}{
		"live": {n: 3, change: func(m *pulsar.ProducerMessage) { m.Properties = map[string]string{"number": "1"} },
			want: "none of its first 3 messages says"},
		"one": {n: 1, change: func(m *pulsar.ProducerMessage) { m.Properties = nil },
			want: "its first message does not say"},
		"empty":   {want: "no message of it says"},
		"retries": {suffix: "-RETRY", n: 3, want: "is a retry topic"},
		"letters": {n: 3},
		"dead name": {suffix: "-DLQ", n: 3,
			change: func(m *pulsar.ProducerMessage) { m.Properties = map[string]string{"number": "1"} }},
		"plain": {n: 3, change: func(m *pulsar.ProducerMessage) {
			m.Properties = map[string]string{"REAL_TOPIC": m.Properties["REAL_TOPIC"], "ORIGIN_MESSAGE_ID": "7:1:-1",
				"ORIGIN_MESSAGE_IDY_TIME": "7:1:-1"}
		}},
		"replayed to": {n: 3, want: "none of its first 3 messages says", change: func(m *pulsar.ProducerMessage) {
			m.Properties = map[string]string{"REAL_TOPIC": m.Properties["REAL_TOPIC"], "ORIGIN_MESSAGE_ID": "7:1:-1",
				"REPLAY_RUN": "1", "REPLAY_COUNT": "1"}
		}},
		"dead again": {n: 3, change: func(m *pulsar.ProducerMessage) {
			m.Properties["REPLAY_RUN"],
				m.Properties["REPLAY_COUNT"] = "1", "1"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tp := b.topics(0)
			topic := tp.origin + "-dead" + c.suffix
			b.create(topic, 0)
			b.subscribe(topic, "live").Close()
			l := tp.letters(c.n)
			for _, m := range l {
				if c.change != nil {
					c.change(m)
				}
			}
			b.publish(pulsar.ProducerOptions{Topic: topic}, 1, l...)
			d := b.open(topic)
			o := deadletter.ReplayOptions{Topic: tp.retry}
			plan, planned := d.Replay(bg, dry(o))
			purgePlan, purgePlanned := d.Purge(bg, deadletter.PurgeOptions{DryRun: true})
			if c.want == "" {
				require.NoError(t, planned)
				require.NoError(t, purgePlanned)
				require.Equal(t, own, plan.Creates)
				require.Equal(t, deadletter.Report{Seen: c.n, Done: c.n, Creates: own}, purgePlan)
				report, err := d.Purge(bg, deadletter.PurgeOptions{Export: io.Discard})
				require.NoError(t, err)
				require.Equal(t, c.n, report.Done)
			} else {
				_, replayed := d.Replay(bg, o)
				_, purged := d.Purge(bg, deadletter.PurgeOptions{Export: io.Discard})
				for _, err := range []error{planned, purgePlanned, replayed, purged} {
					require.ErrorIs(t, err, deadletter.ErrNotDeadLetters)
					require.ErrorContains(t, err, c.want)
				}
				require.Equal(t, -1, b.backlog(topic, own))
				var topics []string
				b.callAdmin("GET", "persistent://"+b.namespace, nil, &topics)
				require.NotContains(t, topics, topic+"-"+own)
			}
			any := b.open(topic, func(o *deadletter.Options) { o.AnyTopic = true })
			report, err := any.Replay(bg, o)
			require.NoError(t, err)
			if c.want != "" {
				require.Equal(t, c.n, report.Done)
			}
			if c.n == 0 { // nothing was published
				require.Equal(t, -1, b.backlog(topic, own))
				return
			}
			require.Zero(t, b.backlog(topic, own))
			plan, err = any.Replay(bg, dry(o))
			require.NoError(t, err)
			require.Empty(t, plan.Creates)
			_, err = d.Purge(bg, deadletter.PurgeOptions{Export: io.Discard})
			if c.suffix != "-RETRY" { // there is no letter, so a purge returns no error
				require.NoError(t, err)
			}
		})
	}
}
