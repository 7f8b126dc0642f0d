package receive

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// Connections are lost, and messages are acknowledged cumulatively. Every message is delivered.
func TestFirstDeliveriesAreInOrder(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Exclusive", "Failover"} {
		for _, way := range []string{"Receive", "Chan", "plain"} {
			for _, every := range []int{1, 10} {
				for _, unloads := range []int{0, 2} {
					t.Run(fmt.Sprintf("%s %s, every %d acknowledged, %d unloads", kind, way, every, unloads),
						func(t *testing.T) {
							t.Parallel()
							inOrder(t, testkit.SubscriptionTypes[kind], way, every, unloads)
						})
				}
			}
		}
	}
}

func inOrder(t *testing.T, kind pulsar.SubscriptionType, way string, every, unloads int) {
	const n = 1000
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	b.SendBatches(topic, n, every > 1)
	c := b.SubscribeEither(way == "plain", b.Options(topic, kind))
	var unloading sync.WaitGroup
	defer unloading.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	seen, late := map[int]bool{}, 0
	for handed, newest := 0, -1; len(seen) < n; handed++ {
		msg, err := testkit.Take(ctx, c, way == "Chan")
		if ctx.Err() != nil {
			break
		}
		require.NoError(t, err)
		i, err := strconv.Atoi(testkit.Name(msg))
		require.NoError(t, err)
		if !seen[i] {
			seen[i] = true
			if i < newest {
				late++
			}
			newest = max(newest, i)
			if len(seen)%(n/3) == 0 && len(seen)/(n/3) <= unloads {
				unloading.Wait() // the broker refuses to unload a topic that it is closing
				unloading.Go(func() { b.Unload(topic) })
			}
		}
		if unloads > 0 {
			time.Sleep(time.Millisecond) // so that the unload finds some messages unacknowledged
		}
		if handed%every == every-1 {
			testkit.Returns(t, func() error { return c.AckCumulative(msg) })
		}
	}
	require.Equal(t, []int{0, 0}, []int{n - len(seen), late},
		"messages that are missing, and first deliveries that are out of order")
}
