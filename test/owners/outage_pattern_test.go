package owners

import (
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// Messages of one topic come back after another topic of the pattern and its three partitions were deleted.
func TestPatternOutlivesDeletedPartitionedTopic(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Exclusive", "Shared"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			vanishes := b.NewTopic(3)
			stays := vanishes + "-stays"
			b.Admin("PUT", stays, "", nil, nil)
			b.AwaitListed(stays)
			opts := b.Options("", testkit.SubscriptionTypes[kind])
			opts.TopicsPattern = vanishes + ".*"
			c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(time.Second))
			b.Send(stays, 1, false)
			msg := testkit.Receive(t, c)
			if b.InProcess != nil {
				// The broker refuses lookups, which would create the partitions again. It answers late, so that each
				// partition begins to reconnect before one gives up.
				b.InProcess.SetHook(func(command pulsartest.Command) pulsartest.Verdict {
					if command.Type == "LOOKUP" && strings.HasPrefix(command.Topic, vanishes+"-partition") {
						return pulsartest.Fail("TopicNotFound", "TopicNotFound").After(300 * time.Millisecond)
					}
					return pulsartest.Pass
				})
			}
			b.Admin("DELETE", vanishes, "/partitions?force=true", nil, nil)
			time.Sleep(2 * time.Second)
			c.Nack(msg)
			testkit.Next(t, c, 10*time.Second)
		})
	}
}

// Another consumer has taken the subscription of one topic. The pattern's consumer loses only that topic.
func TestPatternOutlivesBusyTopic(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"pattern", "plain pattern", "topics"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLookups(t)
			stays := l.NewTopic(0)
			taken := stays + "-taken"
			l.Admin("PUT", taken, "", nil, nil)
			l.AwaitListed(taken)
			opts := l.Options("", pulsar.Exclusive)
			if name == "topics" {
				opts.Topics = []string{taken, stays}
			} else {
				opts.TopicsPattern = stays + ".*"
			}
			c := testkit.Insist(t, func() (pulsar.Consumer, error) {
				if name == "plain pattern" {
					return l.Client.Subscribe(opts)
				}
				return l.TrySubscribe(opts)
			})
			t.Cleanup(c.Close)
			l.cut(taken)
			l.direct.SubscribePlain(l.Options(taken, pulsar.Exclusive))
			l.lost.Store(nil)
			time.Sleep(4 * time.Second) // until the broker has refused c
			l.direct.Send(stays, 1, false)
			testkit.Next(t, c, 10*time.Second)
		})
	}
}
