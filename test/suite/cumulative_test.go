package suite

import (
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

// A cumulative acknowledgement covers what the application has had. The message that Chan offers next is not among that: it is handed
// out, and in its turn.
func TestChanWithAckCumulative(t *testing.T) {
	t.Parallel()
	for _, kind := range []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Failover} {
		for _, every := range []int{1, 10} {
			t.Run(fmt.Sprintf("%v/every %d", kind, every), func(t *testing.T) {
				t.Parallel()
				const n = 1000
				b := newBroker(t)
				topic := b.topic(0)
				c := b.subscribe(b.options(topic, kind))
				ch := c.Chan()
				b.send(topic, n, false)
				for i := range n {
					select {
					case cm := <-ch:
						require.Equal(t, fmt.Sprint(i), string(cm.Payload()), "handed out in order, none left out")
						if i%every == every-1 {
							require.NoError(t, c.AckCumulative(cm))
						}
					case <-time.After(10 * time.Second):
						t.Fatalf("message %d of %d does not come", i, n)
					}
				}
				b.settles(topic, 0)
			})
		}
	}
}
