package retry

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// A Java consumer with enableRetry on the same subscription reads this library's retries and dead letters, and this
// library reads Java's. The messages are in batches, with keys, ordering keys and event times.
func TestJavaClientReadsRetriesAndDeadLetters(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	run := java(b)

	topic := b.NewTopic(0)
	java := func(topic, what string, n int) string {
		return run("Reconsume", topic, testkit.Subscription, what, strconv.Itoa(n))
	}
	said := func(out string, i int, times, origin, reason string) {
		require.Contains(t, out, fmt.Sprintf("%d RECONSUMETIMES %s REAL_TOPIC %s own %d key k%d ordering o%d event %d reason %s\n",
			i, times, origin, i, i, i, 1000+i, reason))
	}
	sendBatch(b, topic, 0, 3)
	sendBatch(b, topic, 3, 6)

	opts := b.RetryOptions(topic, 5)
	opts.AckWithResponse = true
	policy := redelivery.WithReconsumeBackoff(backoff.Fixed(0))
	c := b.Subscribe(opts, policy)
	origins := map[string]string{}
	var first []pulsar.Message // all messages are received before one is moved, since its retry may overtake the others
	for range 6 {
		first = append(first, testkit.Receive(t, c))
	}
	for _, msg := range first {
		if i := string(msg.Payload()); i < "3" {
			origins[i] = msg.ID().String()
			require.NoError(t, c.ReconsumeLaterNext(context.Background(), msg))
		}
	}
	c.Close()

	printed := java(topic, "retry", 6)
	for i := range 6 {
		if i < 3 {
			said(printed, i, "1", topic, "null")
		} else {
			said(printed, i, "null", "null", "null")
		}
	}

	c = b.Subscribe(opts, policy)
	for range 6 {
		msg := testkit.Next(t, c, 10*time.Second)
		props, i := msg.Properties(), string(msg.Payload())
		require.Equal(t, []string{topic, testkit.Subscription, i, "k" + i, "o" + i},
			[]string{props["REAL_TOPIC"], props["REAL_SUBSCRIPTION"], props["own"], msg.Key(), msg.OrderingKey()})
		require.Equal(t, "100"+i, strconv.FormatInt(msg.EventTime().UnixMilli(), 10))
		require.NotEmpty(t, props["ORIGIN_MESSAGE_IDY_TIME"])
		if origin := origins[i]; origin == "" { // Java reconsumed this message first
			require.Equal(t, "1", props["RECONSUMETIMES"])
		} else {
			require.Equal(t, "2", props["RECONSUMETIMES"])
			require.Equal(t, origin, props["ORIGIN_MESSAGE_ID"])
		}
		require.GreaterOrEqual(t, time.Since(msg.PublishTime()), time.Second)
		require.NoError(t, c.DeadLetter(context.Background(), msg, errors.New("out of "+i)))
	}
	b.Settles(topic, 0)
	b.Settles(testkit.RetryTopic(topic), 0)
	c.Close()
	printed = java(testkit.DeadLetterTopic(topic), "read", 6)
	for i := range 6 {
		times := "1"
		if i < 3 {
			times = "2"
		}
		said(printed, i, times, topic, fmt.Sprintf("out of %d", i))
	}

	topic = b.NewTopic(0)
	sendBatch(b, topic, 6, 8)
	java(topic, "dead", 2)
	dead := subscribeReader(b, testkit.DeadLetterTopic(topic))
	for range 2 {
		msg := testkit.Next(t, dead, 10*time.Second)
		i := string(msg.Payload())
		require.Equal(t, []string{topic, i, "k" + i, "o" + i, "100" + i}, []string{msg.Properties()["REAL_TOPIC"],
			msg.Properties()["own"], msg.Key(), msg.OrderingKey(), strconv.FormatInt(msg.EventTime().UnixMilli(), 10)})
	}
}

// java returns a function that runs a program of testdata/java with the broker's address and further arguments. Without
// Java, Maven or a real broker, java skips the test.
func java(b *testkit.Broker) (run func(program string, args ...string) (said string)) {
	b.T.Helper()
	for _, program := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			b.T.Skipf("needs %s to run the Java client", program)
		}
	}
	if b.InProcess != nil {
		b.T.Skip("needs a real broker: PULSAR_URL and PULSAR_ADMIN_URL")
	}
	lib, err := filepath.Abs(".pulsar/lib/java-client")
	require.NoError(b.T, err)
	javaClient.Do(func() {
		out, err := exec.Command("mvn", "-q", "-B", "-f", "testdata/java/pom.xml",
			"org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies", "-DoutputDirectory="+lib).CombinedOutput()
		require.NoError(b.T, err, string(out))
	})
	return func(program string, args ...string) string {
		b.T.Helper()
		args = append([]string{"-cp", filepath.Join(lib, "*"), "testdata/java/" + program + ".java", b.URL}, args...)
		out, err := exec.Command("java", args...).CombinedOutput()
		require.NoError(b.T, err, string(out))
		return string(out)
	}
}

var javaClient sync.Once

// sendBatch publishes messages with all fields set, in one batch.
func sendBatch(b *testkit.Broker, topic string, from, to int) {
	b.T.Helper()
	p, err := b.Client.CreateProducer(pulsar.ProducerOptions{Topic: topic, BatchingMaxPublishDelay: time.Minute})
	require.NoError(b.T, err)
	defer p.Close()
	for i := from; i < to; i++ {
		n := strconv.Itoa(i)
		p.SendAsync(context.Background(),
			&pulsar.ProducerMessage{Payload: []byte(n), Key: "k" + n, OrderingKey: "o" + n,
				EventTime: time.UnixMilli(int64(1000 + i)), Properties: map[string]string{"own": n}}, nil)
	}
	require.NoError(b.T, p.FlushWithCtx(context.Background()))
}
