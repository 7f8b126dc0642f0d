package suite

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func TestUnsubscribeWithoutQueueWhileReceiving(t *testing.T) {
	if testkit.InOwnProcess(t) {
		return
	}
	b := testkit.NewBroker(t)
	opts := b.Options(b.NewTopic(0), pulsar.Shared)
	opts.EnableZeroQueueConsumer = true
	c := b.Subscribe(opts)
	go func() { _, _ = c.Receive(t.Context()) }()
	time.Sleep(100 * time.Millisecond)
	done := make(chan error, 1)
	go func() { done <- c.Unsubscribe() }()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(5 * time.Second):
		t.Error("Unsubscribe hangs")
	}
}
