package publishing

import (
	"context"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

// closing is a producer that closes its channel during a send, as upstream's does.
type closing struct{ pulsar.Producer }

func (closing) SendAsync(context.Context, *pulsar.ProducerMessage,
	func(pulsar.MessageID, *pulsar.ProducerMessage, error)) {
	messages := make(chan int)
	close(messages)
	messages <- 1
}

func TestSendAsyncReturnsThePanicOfAProducerThatClosesItself(t *testing.T) {
	var answers []error
	SendAsync(context.Background(), closing{}, &pulsar.ProducerMessage{},
		func(_ pulsar.MessageID, err error) { answers = append(answers, err) })
	require.Len(t, answers, 1)
	require.ErrorIs(t, answers[0], pulsar.ErrProducerClosed)
}
