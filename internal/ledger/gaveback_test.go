package ledger_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// What the application had when all was given back is handed out again if it comes here, and not counted; what was settled is not.
func TestGaveBack(t *testing.T) {
	run(t, func(o *ledger.Options) { o.RedeliversAll, o.Others = false, true }, func(x *x) {
		had, settled := pulsar.NewMessageID(1, 1, 0, 0), pulsar.NewMessageID(1, 2, 0, 0)
		for _, id := range []pulsar.MessageID{had, settled} {
			x.deliver(message{id: id})
		}
		x.settle(settled)
		x.GaveBack()
		x.Received("t", had)
		d, v := x.deliver(message{id: had})
		require.Equal(x, ledger.Deliver, v)
		require.Zero(x, d.Count)
		_, v = x.deliver(message{id: settled})
		require.Equal(x, ledger.AckDuplicate, v)
	})
}

// Nobody waited for what is received just now: when the first message comes after all was given back, the others are on their way too, and
// are not asked for, which the broker would count.
func TestIdleAsSomethingComes(t *testing.T) {
	run(t, shared, func(x *x) {
		for entry := range int64(2) {
			x.arrive(entry)
		}
		x.GaveBack()
		time.Sleep(time.Second)
		x.Received("t", id(0))
		x.Idle() // whoever waits has not got it yet
		x.verdict(ledger.Deliver, 0)
		time.Sleep(time.Minute)
		require.Empty(x, x.requests())
		x.verdict(ledger.Deliver, 1)
	})
}

// What a feeder offers once more is not the application's when a connection is lost: the broker sends it again, or it is asked for. Nor is what
// the application had when all was given back.
func TestWhatTheBrokerIsToSendAgain(t *testing.T) {
	lost := map[string]func(x *x, d ledger.Delivery){
		"offered": func(x *x, d ledger.Delivery) {
			withdrawn, ok := x.Offer(d)
			require.True(x, ok)
			go func() {
				<-withdrawn
				x.Offered(d, false)
			}()
			x.Disconnected()
		},
		"given back": func(x *x, _ ledger.Delivery) { x.GaveBack() },
	}
	for name, lose := range lost {
		for _, comes := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, comes: %t", name, comes), func(t *testing.T) {
				run(t, shared, func(x *x) {
					d, _ := x.arrive(1)
					x.Nack(d, 0, d.Message, ledger.Failed)
					synctest.Wait()
					require.True(x, x.Next(&d, false))
					lose(x, d)
					require.False(x, x.Next(&ledger.Delivery{}, false))
					if comes {
						again, v := x.comes(1)
						require.Equal(x, ledger.Deliver, v)
						require.EqualValues(x, 1, again.Count)
					}
					time.Sleep(10 * time.Second)
					require.Equal(x, !comes, len(x.requests()) > 0)
				})
			})
		}
	}
}
