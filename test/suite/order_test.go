package suite

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

// Every message is handed out, the first time in order, whatever becomes of the connection and with cumulative
// acknowledgements.
func TestFirstHandOversAreInOrder(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Exclusive", "Failover"} {
		for _, way := range []string{"Receive", "Chan", "plain"} {
			for _, every := range []int{1, 10} {
				for _, unloads := range []int{0, 2} {
					t.Run(fmt.Sprintf("%s %s, every %d acknowledged, %d unloads", kind, way, every, unloads), func(t *testing.T) {
						t.Parallel()
						inOrder(t, kinds[kind], way, every, unloads)
					})
				}
			}
		}
	}
}

func inOrder(t *testing.T, kind pulsar.SubscriptionType, way string, every, unloads int) {
	const n = 1000
	b := newBroker(t)
	topic := b.topic(0)
	b.sendBatches(topic, n, every > 1)
	c := b.either(way == "plain", b.options(topic, kind))
	var unloading sync.WaitGroup
	defer unloading.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	seen, late := map[int]bool{}, 0
	for handed, newest := 0, -1; len(seen) < n; handed++ {
		msg, err := takeBy(ctx, c, way == "Chan")
		if ctx.Err() != nil {
			break
		}
		require.NoError(t, err)
		i, err := strconv.Atoi(name(msg))
		require.NoError(t, err)
		if !seen[i] {
			seen[i] = true
			if i < newest {
				late++
			}
			newest = max(newest, i)
			if len(seen)%(n/3) == 0 && len(seen)/(n/3) <= unloads {
				unloading.Go(func() { b.unload(topic) })
			}
		}
		if unloads > 0 {
			time.Sleep(ms(1)) // so that there are some left
		}
		if handed%every == every-1 {
			returns(t, func() error { return c.AckCumulative(msg) })
		}
	}
	require.Equal(t, []int{0, 0}, []int{n - len(seen), late}, "missing, and handed out for the first time after a later one")
}

// either subscribes with or without the library under test.
func (b *broker) either(plain bool, opts pulsar.ConsumerOptions) pulsar.Consumer {
	if plain {
		return b.plain(opts)
	}
	return b.subscribe(opts)
}
