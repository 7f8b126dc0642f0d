package subscribe

import (
	"bytes"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

type undecryptable struct{ testkit.Message }

func (undecryptable) GetEncryptionContext() *pulsar.EncryptionContext {
	return &pulsar.EncryptionContext{}
}

// After Wrap, the first message comes twice, which shows that a connection was lost.
func TestUndecryptableMessageAfterWrapAndALossIsHandedOut(t *testing.T) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		message := func(entry int64) testkit.Message {
			return testkit.Message{MessageID: pulsar.NewMessageID(1, entry, 0, 0), TopicName: "persistent://public/default/t"}
		}
		inner.Queue <- pulsar.ConsumerMessage{Consumer: inner, Message: message(0)}
		testkit.Receive(t, c)
		inner.Queue <- pulsar.ConsumerMessage{Consumer: inner, Message: message(0)}
		inner.Queue <- pulsar.ConsumerMessage{Consumer: inner, Message: undecryptable{message(1)}}
		require.EqualValues(t, 1, testkit.Receive(t, c).ID().EntryID())
	})
}
