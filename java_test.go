package redelivery_test

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
)

// A Java consumer with enableRetry on the same subscription reads our retries, and we read its.
func TestJavaClient(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s to run the Java client", program)
		}
	}
	b := newBroker(t)
	if b.inProcess != nil {
		t.Skip("needs a real broker: PULSAR_URL and PULSAR_ADMIN_URL")
	}
	lib, err := filepath.Abs(".pulsar/lib/java-client")
	require.NoError(t, err)
	out, err := exec.Command("mvn", "-q", "-B", "-f", "testdata/java/pom.xml",
		"org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies", "-DoutputDirectory="+lib).CombinedOutput()
	require.NoError(t, err, string(out))

	topic := b.topic(0)
	opts := b.retrying(topic, 5)
	opts.AckWithResponse = true
	policy := redelivery.WithReconsumeBackoff(backoff.Fixed(0))
	c := b.subscribe(opts, policy)
	b.send(topic, 2, false)
	ours := receive(t, c)
	require.NoError(t, c.ReconsumeLaterNext(bg, ours))
	c.Close()

	java := exec.Command("java", "-cp", filepath.Join(lib, "*"), "testdata/java/Reconsume.java", b.url, topic, sub)
	out, err = java.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "0 RECONSUMETIMES 1 REAL_TOPIC "+topic)
	require.Contains(t, string(out), "1 RECONSUMETIMES null REAL_TOPIC null")

	c = b.subscribe(opts, policy)
	for range 2 {
		msg := next(t, c, 10*time.Second)
		props := msg.Properties()
		require.Equal(t, topic, props["REAL_TOPIC"])
		require.Equal(t, sub, props["REAL_SUBSCRIPTION"])
		require.NotEmpty(t, props["ORIGIN_MESSAGE_IDY_TIME"])
		if string(msg.Payload()) == "1" { // Java was the first
			require.Equal(t, "1", props["RECONSUMETIMES"])
		} else {
			require.Equal(t, "2", props["RECONSUMETIMES"])
			require.Equal(t, ours.ID().String(), props["ORIGIN_MESSAGE_ID"])
		}
		require.GreaterOrEqual(t, time.Since(msg.PublishTime()), time.Second)
		require.NoError(t, c.Ack(msg))
	}
	b.settles(topic, 0)
	b.settles(retryTopic(topic), 0)
}
