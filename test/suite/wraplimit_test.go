package suite

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func TestWrapWarnsOnceAndOnlyWhenTheMemoryLimitIsExceeded(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int64]int{redelivery.DefaultMemoryLimit: 0, 0: 1} {
		b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
		topic := b.NewTopic(0)
		inner, err := b.Client.Subscribe(b.Options(topic, pulsar.Shared))
		require.NoError(t, err)
		var log logtest.Buffer
		c, err := redelivery.Wrap(inner, redelivery.WithMemoryLimit(limit), redelivery.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		require.NoError(t, err)
		b.Send(topic, 3, false)
		for range 3 {
			c.Nack(testkit.Receive(t, c))
		}
		c.Close()
		require.Equal(t, 1, strings.Count(log.String(), `level=INFO msg="redelivery: Wrap does not know the options`))
		require.Equal(t, want, strings.Count(log.String(), "level=WARN"), log.String())
		require.Equal(t, want, strings.Count(log.String(), "does not fit the memory limit, and comes late"))
	}
}
