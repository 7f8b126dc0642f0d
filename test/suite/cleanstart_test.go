package suite

import (
	"log/slog"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// What pulsar-client-go logs goes to the application's log too, where an error at each start would be looked into.
func TestStartWithALogOfAttemptsLogsNoError(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	var log logtest.Buffer
	errors := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: b.URL, Logger: plog.NewLoggerWithSlog(errors), OperationTimeout: 10 * time.Second})
	require.NoError(t, err)
	defer client.Close()
	for range 10 {
		opts := b.Options(b.NewTopic(0), pulsar.Shared)
		c, err := redelivery.Subscribe(client, opts, redelivery.WithAttemptLog(redelivery.AttemptLog{}), redelivery.WithLogger(errors),
			redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 3, InitialSubscriptionName: "inspect"}))
		require.NoError(t, err)
		c.Close()
	}
	require.Empty(t, log.String())
}
