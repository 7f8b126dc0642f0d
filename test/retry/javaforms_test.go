package retry

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// docs/migration.md lists two differences from the Java client: in keys that pulsar-client-go cannot write, and in the
// form of ids.
func TestJavaKeysAndIDsAreAsDocumented(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	java, topic := java(b), b.NewTopic(0)
	java("Forms", "publish", topic)
	c := b.Subscribe(b.RetryOptions(topic, 5))
	for range 4 {
		require.NoError(t, c.ReconsumeLaterNext(context.Background(), testkit.Next(t, c, 10*time.Second)))
	}
	output := java("Forms", "show", testkit.RetryTopic(topic))
	for _, want := range []string{
		// Java publishes base64=true: the key has the same text, but other bytes
		"bytes of " + testkit.RetryTopic(topic) + " hasKey=true key=AQLI base64=false",
		"empty of " + testkit.RetryTopic(topic) + " hasKey=false key=null", // Java publishes hasKey=true
		"string of " + testkit.RetryTopic(topic) + " hasKey=true key=k base64=false",
		"none of " + testkit.RetryTopic(topic) + " hasKey=false key=null",
	} {
		require.Contains(t, output, want)
	}
	require.Regexp(t, `origin=\d+:\d+:0:0\n`, output) // Java writes no index outside a batch, and -1 for no partition
}

// pulsar-client-go names the retry topic after the first topic of the list, Java after the alphabetically first topic.
func TestRetryTopicIsNamedAfterTheFirstOfSeveralTopics(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	first := b.NewTopic(0)
	second := first + "-2"
	b.Admin("PUT", second, "", nil, nil)
	partitioned := b.NewTopic(2)
	const warning = "would not find these retries"
	for _, topics := range [][]string{{first, second}, {second, first}, {partitioned + "-partition-0", partitioned + "-partition-1"}} {
		var log bytes.Buffer
		opts := b.RetryOptions("", 5)
		opts.Topics = topics
		c, err := redelivery.Subscribe(b.Client, opts, testkit.LogTo(&log))
		require.NoError(t, err)
		c.Close()
		if topics[1] == first {
			require.Contains(t, log.String(), warning)
			require.Contains(t, log.String(), first)
			opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 5, RetryLetterTopic: testkit.RetryTopic(second)}
			log.Reset()
			c, err := redelivery.Subscribe(b.Client, opts, testkit.LogTo(&log))
			require.NoError(t, err)
			c.Close()
		}
		require.NotContains(t, log.String(), warning, topics)
	}
	if b.InProcess != nil {
		return
	}
	b.Send(second, 1, false)
	require.Contains(t, java(b)("Forms", "retry", second, first), "0 of "+testkit.RetryTopic(first))
}

// Java's maxRedeliverCount 3 means a MaxDeliveries of 4 and a MaxReconsumes of 3. So a message is delivered four times,
// whether the application nacks or reconsumes it.
func TestJavaLimitOfThreeMeansFourDeliveries(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"nack", "reconsume"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			opts := b.RetryOptions(topic, 0)
			opts.DLQ, opts.RetryEnable = nil, how == "reconsume"
			policy := redelivery.DeadLetterPolicy{MaxDeliveries: 4, InitialSubscriptionName: "audit"}
			if how == "reconsume" {
				policy.MaxReconsumes = 3
			}
			c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(10*time.Millisecond),
				redelivery.WithDeadLetterPolicy(policy))
			b.Send(topic, 1, false)
			for range 4 {
				if msg := testkit.Next(t, c, 10*time.Second); how == "nack" {
					c.Nack(msg)
				} else {
					require.NoError(t, c.ReconsumeLaterAfter(context.Background(), msg, 0, nil))
				}
			}
			b.ReceiveDeadLetter(testkit.DeadLetterTopic(topic), "audit")
			if b.InProcess == nil {
				require.Contains(t, java(b)("Deaths", b.NewTopic(0), how), "delivered 4\n")
			}
		})
	}
}

// Java has a dead letter topic for each partition. pulsar-client-go cannot open topics with such names.
func TestJavaDeadLettersOfPartitionsAreRead(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	java, topic := java(b), b.NewTopic(2)
	output := java("Deaths", topic, "partitions")
	require.Regexp(t, `dead in \S+`+topic[strings.LastIndex(topic,
		"/")+1:]+`-partition-([01])-sub-DLQ of \S+-partition-[01]\n`, output)
	_, err := deadletter.Open(b.Client, deadletter.Options{Topic: topic + "-partition-0-sub-DLQ"})
	require.ErrorIs(t, err, deadletter.ErrUnopenable)
	_, err = b.Client.CreateReader(pulsar.ReaderOptions{Topic: topic + "-partition-0-sub-DLQ",
		StartMessageID: pulsar.EarliestMessageID()})
	require.Error(t, err, "pulsar-client-go can open such topics: package deadletter no longer needs ErrUnopenable")
}
