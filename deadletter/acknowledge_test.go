package deadletter

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

// closedConsumer is a consumer whose client is closed.
type closedConsumer struct{ pulsar.Consumer }

func (closedConsumer) AckIDList(ids []pulsar.MessageID) error {
	return pulsar.AckError{ids[0]: errors.New("consumer state is closed")}
}

func TestAcknowledgeOfClosedClientReturnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		err := acknowledge(t.Context(), closedConsumer{}, []pulsar.MessageID{pulsar.NewMessageID(1, 2, 0, 0)})
		require.ErrorContains(t, err, "1 letters are done, but could not be acknowledged")
		require.Zero(t, time.Since(begin))
	})
}
