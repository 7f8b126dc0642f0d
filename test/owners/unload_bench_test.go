package owners

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// BenchmarkUnloadBeside makes messages of four partitions wait, one due every 5 ms, and unloads one partition. It
// reports how late the messages of the other three partitions are: those due in the two seconds before the unload, and
// those due in the two seconds after it. Either one message in ten fails, or all fail. If all fail, Shared and
// Key_Shared request them from the broker. Run it with -benchtime 5x.
func BenchmarkUnloadBeside(b *testing.B) {
	for name, kind := range testkit.SubscriptionTypes {
		for which, ratio := range map[string]int{"some fail": 10, "all fail": 1} {
			b.Run(name+"/"+which, func(b *testing.B) {
				late := map[string][]time.Duration{}
				for range b.N {
					unloadBeside(b, kind, ratio, late)
				}
				for when, late := range late {
					slices.Sort(late)
					for percent, unit := range map[int]string{50: "-p50-ms", 99: "-p99-ms", 100: "-max-ms"} {
						i := (len(late) - 1) * percent / 100
						b.ReportMetric(float64(late[i].Microseconds())/1000, when+unit)
					}
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// unloadBeside makes one message in ratio fail once, and adds the lateness of its redelivery to late.
func unloadBeside(b *testing.B, kind pulsar.SubscriptionType, ratio int, late map[string][]time.Duration) {
	const failing, partitions, every = 800, 4, 5 * time.Millisecond
	broker := testkit.NewBroker(b)
	topic := broker.NewTopic(partitions)
	c := broker.Subscribe(broker.Options(topic, kind))
	n := failing * ratio
	broker.Send(topic, n, false)
	begin := time.Now().Add(2 * time.Second) // when the first message is due
	unloaded := begin.Add(failing / 2 * every)
	away := testkit.PartitionsOf(topic, partitions)[0]
	time.AfterFunc(time.Until(unloaded), func() { broker.Unload(away) })
	due, settled := map[string]time.Time{}, 0
	for settled < n {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		msg, err := c.Receive(ctx)
		cancel()
		require.NoError(b, err, "%d of %d are settled", settled, n)
		now, i := time.Now(), string(msg.Payload())
		number, err := strconv.Atoi(i)
		require.NoError(b, err)
		if at, ok := due[i]; ok {
			require.False(b, now.Before(at), "%s is early", i)
			if msg.Topic() != away {
				when := map[bool]string{true: "after", false: "before"}[at.After(unloaded)]
				late[when] = append(late[when], now.Sub(at))
			}
		} else if number%ratio == 0 {
			due[i] = begin.Add(time.Duration(number/ratio) * every)
			require.NoError(b, c.NackWithDelay(msg, time.Until(due[i])))
			continue
		}
		settled++
		require.NoError(b, c.Ack(msg))
	}
	c.Close()
}
