package deadletter_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

// The letters after it are replayed.
func TestLetterThatItsTopicRefusesIsPublishedInAnotherWayOrStays(t *testing.T) {
	t.Parallel()
	large := make([]byte, 20_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(large) // which does not compress
	for name, c := range map[string]struct {
		set  func(b *broker, tp topics)
		bad  func(b *broker, l *pulsar.ProducerMessage) pulsar.Schema
		left string
	}{
		"too large": {
			set: func(b *broker, tp topics) { b.callAdmin("POST", tp.origin+"/maxMessageSize", 8192, nil) },
			bad: func(_ *broker, l *pulsar.ProducerMessage) pulsar.Schema {
				l.Payload = large
				return nil
			},
		},
		"properties too large": {
			set: func(b *broker, tp topics) { b.callAdmin("POST", tp.origin+"/maxMessageSize", 8192, nil) },
			bad: func(_ *broker, l *pulsar.ProducerMessage) pulsar.Schema {
				l.Properties["large"] = string(large)
				return nil
			},
		},
		"another schema": {
			set: func(b *broker, tp topics) {
				b.publish(pulsar.ProducerOptions{Topic: tp.origin,
					Schema: pulsar.NewJSONSchema(`{"type":"record","name":"A","fields":[{"name":"n","type":"int"}]}`,
						nil)}, 1)
			},
			bad: func(_ *broker, l *pulsar.ProducerMessage) pulsar.Schema {
				l.Value, l.Payload = struct {
					N string `json:"n"`
				}{"x"}, nil
				return pulsar.NewJSONSchema(`{"type":"record","name":"A","fields":[{"name":"n","type":"string"}]}`, nil)
			},
			left: "has a schema that its topic does not take",
		},
		"terminated": {
			bad: func(b *broker, l *pulsar.ProducerMessage) pulsar.Schema {
				other := b.topics(0)
				cameFrom(l, other.origin)
				b.callAdmin("POST", other.origin+"/terminate", nil, nil)
				return nil
			},
			left: "goes to a topic that is terminated",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := real(t)
			tp := b.topics(0)
			l := tp.letters(3)
			if c.set != nil {
				c.set(b, tp)
				time.Sleep(time.Second) // until the policy takes effect
			}
			b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, l[0])
			schema := c.bad(b, l[1])
			// only a batch has the version of its schema
			b.publish(pulsar.ProducerOptions{Topic: tp.dlq, Schema: schema}, 2, l[1])
			b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, l[2])
			d := b.open(tp.dlq)
			begin := time.Now()
			report, err := d.Replay(bg, deadletter.ReplayOptions{ToOrigin: true})
			require.NoError(t, err)
			require.Less(t, time.Since(begin), 40*time.Second)
			if c.left == "" {
				require.Equal(t, upTo(3), numbers(b.receive(tp.origin)))
				return
			}
			require.Equal(t, 2, report.Done)
			require.Len(t, report.Left, 1)
			require.Equal(t, c.left, report.Left[0].Why)
			require.Equal(t, 1, b.backlog(tp.dlq, own))
			require.Equal(t, []string{"0", "2"}, numbers(b.receive(tp.origin)))
			report, err = d.Replay(bg, deadletter.ReplayOptions{ToOrigin: true})
			require.NoError(t, err)
			require.Zero(t, report.Done)
			require.Len(t, report.Left, 1)
		})
	}
}
