package suite

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

func TestDeadLetterIsLoggedWithTheErrorUnlessOmitted(t *testing.T) {
	t.Parallel()
	for _, omit := range []bool{false, true} {
		broker := pulsartest.NewServer(t)
		var log logtest.Buffer
		c, err := redelivery.Subscribe(broker.Client(t), pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing", Type: pulsar.Shared},
			redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 1, OmitCause: omit}),
			redelivery.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		require.NoError(t, err)
		defer c.Close()
		broker.Publish(t, "orders", &pulsar.ProducerMessage{Payload: []byte("tea")})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		msg, err := c.Receive(ctx)
		require.NoError(t, err)
		require.NoError(t, c.DeadLetter(ctx, msg, errors.New("card 4111 refused"+strings.Repeat("!", 2000))))
		require.Contains(t, log.String(), `msg="redelivery: dead letter"`)
		require.Contains(t, log.String(), "error_type=*errors.errorString")
		require.Equal(t, !omit, strings.Contains(log.String(), `error="card 4111 refused!!!`))
		require.Less(t, len(log.String()), 2000)
	}
}
