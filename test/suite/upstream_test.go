package suite

import (
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func TestUpstreamReturnsTheChannelItGot(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	opts, err := testkit.PreparedOptions(b.Options(b.NewTopic(0), pulsar.Shared))
	require.NoError(t, err)
	inner, err := b.Client.Subscribe(opts)
	require.NoError(t, err)
	defer inner.Close()
	require.Equal(t, (<-chan pulsar.ConsumerMessage)(opts.MessageChannel), inner.Chan(), "it is how SubscribeWith knows its consumer")
}
