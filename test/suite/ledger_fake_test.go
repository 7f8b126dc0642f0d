package suite

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// A Receive that is under way gives way to a Seek, and still heeds its context.
func TestReceiveHeedsItsContextDuringASeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{})
		over := make(chan struct{})
		end := sync.OnceFunc(func() { close(over) })
		defer end()
		s.OnSeek = func() { <-over }
		received := make(chan error, 2)
		ctx, cancel := context.WithCancel(context.Background())
		receiving := func() { _, err := c.Receive(ctx); received <- err }
		go receiving()
		synctest.Wait()
		sought := make(chan error, 1)
		go func() { sought <- c.SeekByTime(time.Now()) }()
		synctest.Wait()
		go receiving()
		synctest.Wait()
		cancel()
		synctest.Wait()
		require.Len(t, received, 2, "Receive outlives its context")
		require.ErrorIs(t, <-received, context.Canceled)
		require.ErrorIs(t, <-received, context.Canceled)
		end()
		require.NoError(t, <-sought)
	})
}

// A pattern's topics come and go, each with a consumer of its own.
func TestAVanishedTopicIsForgotten(t *testing.T) {
	c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{TopicsPattern: "persistent://public/default/.*", Type: pulsar.Shared})
	var gone []weak.Pointer[testkit.StandIn]
	for i := range 10 {
		child := &testkit.StandIn{Opts: pulsar.ConsumerOptions{}}
		topic := "vanishing-" + strconv.Itoa(i)
		for n := range int64(3) {
			s.PublishBy(child, testkit.Entry(topic, n))
			msg := testkit.Receive(t, c)
			require.Equal(t, topic, msg.Topic())
			require.NoError(t, c.Ack(msg))
		}
		s.Opts.Interceptors.OnConsumerClose(child, nil)
		gone = append(gone, weak.Make(child))
	}
	s.Publish(testkit.Entry("lasting", 1))
	require.NoError(t, c.Ack(testkit.Receive(t, c)))
	s.Truncate()
	left := 0
	for range 20 {
		runtime.GC()
		left = 0
		for _, child := range gone {
			if child.Value() != nil {
				left++
			}
		}
		if left == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	require.Zero(t, left, "consumers of vanished topics are kept")
}
