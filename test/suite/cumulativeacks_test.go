package suite

import (
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// Within a batch upstream sends nothing for a cumulative acknowledgement before that of the last message.
func TestRefusedCumulativeAckIsMadeGoodByTheNext(t *testing.T) {
	t.Parallel()
	for name, batch := range map[string]bool{"one by one": false, "a batch": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
			topic := b.NewTopic(0)
			b.Send(topic, 1, false)
			b.Send(topic, 3, batch)
			opts := b.Options(topic, pulsar.Exclusive)
			opts.AckWithResponse = true
			c := b.Subscribe(opts)
			var msgs []pulsar.Message
			for range 3 {
				msgs = append(msgs, testkit.Receive(t, c))
			}
			b.InProcess.Inject("ACK", "", 1, pulsartest.Fail("PersistenceError", "injected"))
			require.ErrorContains(t, c.AckCumulative(msgs[1]), "injected")
			require.NoError(t, c.InProgress(msgs[1]), "it is still the application's")
			require.NoError(t, c.AckCumulative(msgs[2]))
			require.NoError(t, c.AckCumulative(testkit.Receive(t, c)))
			b.Settles(topic, 0)
			testkit.ReceiveNothing(t, c, 300*time.Millisecond)
		})
	}
}

// A connection swallows a cumulative acknowledgement. It is not repeated, which is a known window; but what follows is
// handed out, and the next acknowledgement is for all. If the process ends before, the next consumer gets the messages.
func TestAfterACumulativeAckWasSwallowed(t *testing.T) {
	t.Parallel()
	const n = 30
	for batch, name := range []string{"one by one", "batches"} {
		for _, kind := range []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Failover} {
			for _, restarts := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%v/restart %v", name, kind, restarts), func(t *testing.T) {
					t.Parallel()
					b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
					topic := b.NewTopic(0)
					c := b.Subscribe(b.Options(topic, kind))
					b.Send(topic, n, batch == 1)
					var last pulsar.Message
					for range n {
						last = testkit.Receive(t, c)
					}
					b.InProcess.Inject("ACK", "", 100, pulsartest.Drop)
					require.NoError(t, c.AckCumulative(last))
					time.Sleep(300 * time.Millisecond) // upstream sends it within 100 ms
					b.InProcess.DropConnections()
					require.Eventually(t, func() bool { return c.Stats().Reconnecting == 0 }, testkit.Patience, time.Millisecond)
					b.InProcess.Inject("ACK", "", 0, pulsartest.Pass)
					testkit.ReceiveNothing(t, c, 500*time.Millisecond) // an acknowledged message does not come again
					if restarts {
						backlog := b.Stats(topic, 0).Backlog
						c.Close()
						c = b.Subscribe(b.Options(topic, kind))
						if backlog > 0 {
							for range n {
								last = testkit.Receive(t, c)
							}
						}
					} else {
						b.Send(topic, 1, false)
						last = testkit.Receive(t, c)
					}
					require.NoError(t, c.AckCumulative(last))
					b.Settles(topic, 0)
					testkit.ReceiveNothing(t, c, 300*time.Millisecond)
				})
			}
		}
	}
}

// Messages that were acknowledged before a Seek come again after it: the new connection does not acknowledge them.
func TestSeekAfterACumulativeAck(t *testing.T) {
	t.Parallel()
	const n = 30
	for _, kind := range []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Failover} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			o := b.Options(topic, kind)
			// upstream drops it all if it has sent the acknowledgement
			o.AckGroupingOptions = &pulsar.AckGroupingOptions{MaxSize: n, MaxTime: time.Hour}
			c := b.Subscribe(o)
			b.Send(topic, n, false)
			for range 3 {
				var last pulsar.Message
				for i := range n {
					last = testkit.Receive(t, c)
					require.Equal(t, fmt.Sprint(i), string(last.Payload()))
				}
				require.NoError(t, c.AckCumulative(last))
				require.NoError(t, c.SeekByTime(time.Unix(0, 0)))
			}
			for range n {
				require.NoError(t, c.Ack(testkit.Receive(t, c)))
			}
			b.Settles(topic, 0)
		})
	}
}

// Another consumer of the subscription may seek too, which breaks this one's connection. What this one acknowledged
// some time ago is not acknowledged again where upstream does not drop what comes again: where the broker has answered,
// and where acknowledgements are not grouped.
func TestSeekOfAnotherConsumerAfterACumulativeAck(t *testing.T) {
	t.Parallel()
	const n = 10
	testkit.Each(t, map[string]func(*pulsar.ConsumerOptions){
		"responses":   func(o *pulsar.ConsumerOptions) { o.AckWithResponse = true },
		"not grouped": func(o *pulsar.ConsumerOptions) { o.AckGroupingOptions = &pulsar.AckGroupingOptions{MaxSize: 1} },
	}, func(t *testing.T, set func(*pulsar.ConsumerOptions)) {
		t.Parallel()
		b := testkit.NewBroker(t)
		topic := b.NewTopic(1)
		o := b.Options(topic, pulsar.Failover)
		set(&o)
		o.Name = "a" // the first name has the first partition
		c := b.Subscribe(o)
		o.Name = "b"
		other := b.Subscribe(o)
		b.Send(topic, n, false)
		var last pulsar.Message
		for range n {
			last = testkit.Receive(t, c)
		}
		require.NoError(t, c.AckCumulative(last))
		b.Settles(topic, 1)
		testkit.ReceiveNothing(t, c, settledForSure) // an application that does not wait shows nothing
		require.NoError(t, other.SeekByTime(time.Unix(0, 0)))
		idle := func() bool { return c.Stats().Reconnecting+other.Stats().Reconnecting == 0 }
		require.Eventually(t, idle, testkit.Patience, 10*time.Millisecond)
		time.Sleep(time.Second)
		require.Equal(t, n, b.Stats(topic, 1).Backlog, "what the other one moved back to is still to come")
		got := map[string]bool{}
		for range n {
			msg, err := firstOf(t, c, other)
			require.NoError(t, err)
			got[string(msg.Payload())] = true
		}
		require.Len(t, got, n)
	})
}

// settledForSure is how long after an acknowledgement a copy is taken for an operator's reset, and not for a lost one.
const settledForSure = 8 * time.Second

// firstOf receives from the consumer that has a message.
func firstOf(t *testing.T, consumers ...*redelivery.Consumer) (msg pulsar.Message, err error) {
	t.Helper()
	for start := time.Now(); time.Since(start) < testkit.Patience; {
		for _, c := range consumers {
			msg, err = testkit.ReceiveWithin(c, 100*time.Millisecond)
			if err == nil {
				return msg, c.Ack(msg)
			}
		}
	}
	return nil, err
}
