package owners

import (
	"runtime"
	"strconv"
	"testing"
	"time"
	"weak"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// The Consumer requests waiting messages of one topic although another topic has vanished and has no connection.
func TestVanishedTopicSparesWaitingMessagesOfOthers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"pattern", "topics"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{}, pulsartest.WithoutTopicCreation())
			vanishes := b.NewTopic(0)
			stays := vanishes + "-stays"
			b.Admin("PUT", stays, "", nil, nil)
			opts := b.Options("", pulsar.Shared)
			if name == "pattern" {
				opts.TopicsPattern = vanishes + ".*"
			} else {
				opts.Topics = []string{vanishes, stays}
			}
			c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(time.Second))
			b.Send(stays, 1, false)
			msg := testkit.Receive(t, c)
			b.Admin("DELETE", vanishes, "?force=true", nil, nil)
			time.Sleep(2 * time.Second)
			c.Nack(msg)
			testkit.Receive(t, c)
		})
	}
}

// A pattern's topics come and go, each with an inner consumer. The Consumer forgets the inner consumers of vanished
// topics.
func TestVanishedTopicIsForgotten(t *testing.T) {
	c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{TopicsPattern: "persistent://public/default/.*",
		Type: pulsar.Shared})
	var gone []weak.Pointer[testkit.StandIn]
	for i := range 10 {
		child := &testkit.StandIn{Opts: pulsar.ConsumerOptions{}}
		topic := "vanishing-" + strconv.Itoa(i)
		for n := range int64(3) {
			s.PublishBy(child, testkit.Entry(topic, n))
			msg := testkit.Receive(t, c)
			require.Equal(t, topic, msg.Topic())
			require.NoError(t, c.Ack(msg))
		}
		s.Opts.Interceptors.OnConsumerClose(child, nil)
		gone = append(gone, weak.Make(child))
	}
	s.Publish(testkit.Entry("lasting", 1))
	require.NoError(t, c.Ack(testkit.Receive(t, c)))
	s.Truncate()
	left := 0
	for range 20 {
		runtime.GC()
		left = 0
		for _, child := range gone {
			if child.Value() != nil {
				left++
			}
		}
		if left == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	require.Zero(t, left, "consumers of vanished topics are kept")
}
