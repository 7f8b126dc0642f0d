package suite

import (
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// Messages of one topic come back after another one that matches the pattern was deleted, with its three partitions.
func TestAPartitionedTopicOfAPatternVanishes(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Exclusive", "Shared"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			vanishes := b.topic(3)
			stays := vanishes + "-stays"
			b.rest("PUT", stays, "", nil, nil)
			opts := b.options("", kinds[kind])
			opts.TopicsPattern = vanishes + ".*"
			c := b.subscribe(opts, redelivery.WithNackRedeliveryDelay(time.Second))
			b.send(stays, 1, false)
			msg := receive(t, c)
			if b.inProcess != nil { // which would create the partitions again; each begins to reconnect before one gives up
				b.inProcess.SetHook(func(command pulsartest.Command) pulsartest.Verdict {
					if command.Type == "LOOKUP" && strings.HasPrefix(command.Topic, vanishes+"-partition") {
						return pulsartest.Fail("TopicNotFound", "TopicNotFound").After(ms(300))
					}
					return pulsartest.Pass
				})
			}
			b.rest("DELETE", vanishes, "/partitions?force=true", nil, nil)
			time.Sleep(2 * time.Second)
			c.Nack(msg)
			next(t, c, 10*time.Second)
		})
	}
}

// A topic whose subscription somebody else has taken is lost to the consumer, the others that match are not.
func TestATopicOfAPatternThatIsBusyDoesNotEndTheConsumer(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"pattern", "plain pattern", "topics"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLookups(t)
			stays := l.topic(0)
			taken := stays + "-taken"
			l.rest("PUT", taken, "", nil, nil)
			opts := l.options("", pulsar.Exclusive)
			if name == "topics" {
				opts.Topics = []string{taken, stays}
			} else {
				opts.TopicsPattern = stays + ".*"
			}
			var c pulsar.Consumer
			if name == "plain pattern" {
				c = l.plain(opts)
			} else {
				c = l.subscribe(opts)
			}
			l.cut(taken)
			other := &broker{t: t, url: l.direct}
			other.connect(pulsar.ClientOptions{})
			other.plain(l.options(taken, pulsar.Exclusive))
			l.lost.Store(nil)
			time.Sleep(4 * time.Second) // until c has been refused
			l.send(stays, 1, false)
			next(t, c, 10*time.Second)
		})
	}
}
