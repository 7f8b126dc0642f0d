package deadletter_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

// The letters of plain pulsar-client-go say where they came from, and nothing else.
func TestPlainClient(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.origin}, 1, &pulsar.ProducerMessage{Payload: []byte("x"), Key: "k", Properties: map[string]string{"own": "1"}})
	c, err := b.client.Subscribe(pulsar.ConsumerOptions{Topic: tp.origin, SubscriptionName: sub, Type: pulsar.Shared,
		NackRedeliveryDelay: 100 * time.Millisecond, DLQ: &pulsar.DLQPolicy{MaxDeliveries: 1, DeadLetterTopic: tp.dlq}})
	require.NoError(t, err)
	defer c.Close()
	msg, err := c.Receive(bg)
	require.NoError(t, err)
	c.Nack(msg)
	d := b.open(tp.dlq)
	require.Eventually(t, func() bool { return len(peek(t, d)) == 1 }, 20*time.Second, 100*time.Millisecond)
	l := peek(t, d)[0]
	assert.Equal(t, tp.origin, l.Origin)
	assert.Equal(t, sub, l.Subscription)
	assert.NotEmpty(t, l.OriginID)
	assert.Empty(t, l.Reason)
	_, err = d.Replay(bg, deadletter.ReplayOptions{})
	require.NoError(t, err)
	got := b.receive(tp.retry)
	require.Len(t, got, 1)
	assert.Equal(t, "x", string(got[0].Payload()))
	assert.Equal(t, "k", got[0].Key())
	assert.Equal(t, "1", got[0].Properties()["own"])
}

func TestJavaClient(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s to run the Java client", program)
		}
	}
	b := real(t)
	lib, err := filepath.Abs("../.pulsar/lib/java-client")
	require.NoError(t, err)
	out, err := exec.Command("mvn", "-q", "-B", "-f", "../testdata/java/pom.xml",
		"org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies", "-DoutputDirectory="+lib).CombinedOutput()
	require.NoError(t, err, string(out))
	tp := b.topics(0)
	java := func(what string) string {
		cmd := exec.Command("java", "-cp", filepath.Join(lib, "*"), "testdata/Letters.java", b.url, tp.origin, sub, what, "5")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	java("die")
	d := b.open(tp.dlq)
	letters := peek(t, d)
	require.Len(t, letters, 5)
	for _, l := range letters {
		assert.Equal(t, tp.origin, l.Origin)
		assert.Equal(t, sub, l.Subscription)
		assert.NotEmpty(t, l.Schema)
	}
	report, err := d.Replay(bg, deadletter.ReplayOptions{})
	require.NoError(t, err)
	require.Equal(t, 5, report.Done, "%+v", report)
	got := java("read")
	for i := range 5 {
		require.Contains(t, got, fmt.Sprintf("%d of Java key %d %d 1 true\n", i, i, 1000+i), "what Java reads")
	}
	require.Equal(t, 5, strings.Count(got, "\n"))
}

func peek(t testing.TB, d *deadletter.Topic) []deadletter.Letter {
	t.Helper()
	var all []deadletter.Letter
	for l, err := range d.Peek(bg, 0) {
		require.NoError(t, err)
		all = append(all, l)
	}
	return all
}
