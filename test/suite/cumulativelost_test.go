package suite

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// losesAcks acknowledges to each of some messages, twice, and loses that with the connection, with what is made again of the first time. Then
// the link works.
func (b *broker) losesAcks(c *redelivery.Consumer, upTo ...pulsar.Message) {
	b.t.Helper()
	for range 2 {
		b.inProcess.Inject("ACK", "", 100, pulsartest.Drop)
		for _, msg := range upTo {
			require.NoError(b.t, c.AckCumulative(msg))
		}
		time.Sleep(ms(300)) // upstream sends it within 100 ms
		b.inProcess.DropConnections()
		require.Eventually(b.t, func() bool { return c.Stats().Reconnecting == 0 }, patience, ms(1))
		time.Sleep(ms(300))
	}
	b.inProcess.Inject("ACK", "", 0, pulsartest.Pass)
	b.inProcess.DropConnections()
}

// A cumulative acknowledgement that got lost on a dead link is made again by the next connection. Upstream has dropped the copies that the
// broker sends again, so that nothing would come that could be acknowledged, and it refuses to make the same one twice.
func TestACumulativeAcknowledgementThatGotLost(t *testing.T) {
	t.Parallel()
	const n = 30
	for name, c := range map[string]struct {
		batch, upTo, left int // left are entries
		indexAcks         bool
	}{
		"one by one":               {batch: 1, upTo: n - 1},
		"not the newest":           {batch: 1, upTo: n - 5, left: 4},
		"batches":                  {batch: 10, upTo: n - 1},
		"not the newest batch":     {batch: 10, upTo: n - 11, left: 1},
		"in the middle of a batch": {batch: 10, upTo: n - 5, left: 1},
		"index acks":               {batch: 10, upTo: n - 11, left: 1, indexAcks: true},
	} {
		for _, kind := range []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Failover} {
			for _, partitions := range []int{0, 1} {
				t.Run(fmt.Sprintf("%s/%v/%d", name, kind, partitions), func(t *testing.T) {
					t.Parallel()
					var options []pulsartest.Option
					if c.indexAcks {
						options = append(options, pulsartest.WithBatchIndexAcknowledgment())
					}
					b := newInProcess(t, pulsar.ClientOptions{}, options...)
					topic := b.topic(partitions)
					o := b.options(topic, kind)
					o.EnableBatchIndexAcknowledgment = c.indexAcks
					told := &acknowledged{}
					o.Interceptors = append(o.Interceptors, told)
					consumer := b.subscribe(o, redelivery.WithoutBatchIndexAcks()) // with them, one in the middle of a batch is not made again
					producer, err := b.client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: c.batch == 1,
						BatchingMaxMessages: uint(c.batch), BatchingMaxPublishDelay: time.Hour})
					require.NoError(t, err)
					for i := range n {
						producer.SendAsync(t.Context(), &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(i))},
							func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
					}
					require.NoError(t, producer.FlushWithCtx(t.Context()))
					var msgs []pulsar.Message
					for range n {
						msgs = append(msgs, receive(t, consumer))
					}
					b.losesAcks(consumer, msgs[c.upTo])
					require.Eventually(t, func() bool { return b.stats(topic, partitions).Backlog == c.left }, patience, ms(50),
						"%+v", b.stats(topic, partitions))
					for _, id := range told.all() {
						require.Less(t, id.BatchIdx(), int32(c.batch), "an interceptor is told of messages only")
					}
				})
			}
		}
	}
}

func TestCumulativeAcknowledgementsOfSeveralTopicsThatGotLost(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"topics", "pattern"} {
		t.Run(how, func(t *testing.T) {
			b := newInProcess(t, pulsar.ClientOptions{})
			a, p := b.topic(0), b.topic(3)
			o := b.options("", pulsar.Exclusive)
			if how == "topics" {
				o.Topics = []string{a, p}
			} else {
				o.TopicsPattern = "persistent://public/default/t-.*"
			}
			c := b.subscribe(o)
			b.send(a, 10, false)
			b.send(p, 30, false)
			last := map[string]pulsar.Message{}
			for range 40 {
				m := receive(t, c)
				last[m.Topic()] = m
			}
			require.Len(t, last, 4)
			b.losesAcks(c, slices.Collect(maps.Values(last))...)
			b.settles(a, 0)
			b.settles(p, 3)
			require.Zero(t, c.Stats().Failed)
		})
	}
}

// acknowledged notes what is acknowledged.
type acknowledged struct {
	mu  sync.Mutex
	ids []pulsar.MessageID
}

func (*acknowledged) BeforeConsume(pulsar.ConsumerMessage)                   {}
func (*acknowledged) OnNegativeAcksSend(pulsar.Consumer, []pulsar.MessageID) {}

func (a *acknowledged) OnAcknowledge(_ pulsar.Consumer, id pulsar.MessageID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ids = append(a.ids, id)
}

func (a *acknowledged) all() []pulsar.MessageID {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ids
}

// A Seek breaks the connection as well. What was acknowledged before is not acknowledged again: it is to come.
func TestSeekAfterACumulativeAcknowledgement(t *testing.T) {
	t.Parallel()
	const n = 30
	for _, kind := range []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Failover} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			topic := b.topic(0)
			o := b.options(topic, kind)
			o.AckGroupingOptions = &pulsar.AckGroupingOptions{MaxSize: n, MaxTime: time.Hour} // upstream drops it all if it has sent the acknowledgement
			c := b.subscribe(o)
			b.send(topic, n, false)
			for range 3 {
				var last pulsar.Message
				for i := range n {
					last = receive(t, c)
					require.Equal(t, fmt.Sprint(i), string(last.Payload()))
				}
				require.NoError(t, c.AckCumulative(last))
				require.NoError(t, c.SeekByTime(time.Unix(0, 0)))
			}
			for range n {
				require.NoError(t, c.Ack(receive(t, c)))
			}
			b.settles(topic, 0)
		})
	}
}

// Another consumer of the subscription may seek too, which breaks this one's connection. What this one acknowledged is not acknowledged again
// where upstream does not drop what comes again: where the broker has answered, and where acknowledgements are not grouped.
func TestAnotherConsumerSeeksAfterACumulativeAcknowledgement(t *testing.T) {
	t.Parallel()
	const n = 10
	each(t, map[string]func(*pulsar.ConsumerOptions){
		"responses":   func(o *pulsar.ConsumerOptions) { o.AckWithResponse = true },
		"not grouped": func(o *pulsar.ConsumerOptions) { o.AckGroupingOptions = &pulsar.AckGroupingOptions{MaxSize: 1} },
	}, func(t *testing.T, set func(*pulsar.ConsumerOptions)) {
		b := newBroker(t)
		topic := b.topic(1)
		o := b.options(topic, pulsar.Failover)
		set(&o)
		o.Name = "a" // the first name has the first partition
		c := b.subscribe(o)
		o.Name = "b"
		other := b.subscribe(o)
		b.send(topic, n, false)
		var last pulsar.Message
		for range n {
			last = receive(t, c)
		}
		require.NoError(t, c.AckCumulative(last))
		b.settles(topic, 1)
		time.Sleep(2 * time.Second) // what was acknowledged just now is not handed out again
		require.NoError(t, other.SeekByTime(time.Unix(0, 0)))
		require.Eventually(t, func() bool { return c.Stats().Reconnecting+other.Stats().Reconnecting == 0 }, patience, ms(10))
		time.Sleep(time.Second)
		require.Equal(t, n, b.stats(topic, 1).Backlog, "what the other one moved back to is still to come")
	})
}

// seeker is connected again before its Seek returns.
type seeker struct {
	*fake
	opts pulsar.ConsumerOptions
	to   []pulsar.MessageID
}

func newSeeker(t *testing.T) (*redelivery.Consumer, *seeker) {
	s := &seeker{fake: newFake()}
	c, err := redelivery.SubscribeWith(func(o pulsar.ConsumerOptions) (pulsar.Consumer, error) {
		s.opts = o
		s.prefetch(t, o.MessageChannel)
		return s, nil
	}, pulsar.ConsumerOptions{Type: pulsar.Exclusive})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c, s
}

// acknowledge has a message delivered and acknowledged.
func (s *seeker) acknowledge(t *testing.T, c *redelivery.Consumer) {
	s.queue <- pulsar.ConsumerMessage{Consumer: s, Message: message{id: pulsar.NewMessageID(1, 1, 0, 0)}}
	require.NoError(t, c.AckCumulative(receive(t, c)))
}

func (s *seeker) AckIDCumulative(id pulsar.MessageID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = append(s.to, id)
	return nil
}

func (s *seeker) reconnect() int {
	s.opts.BackOffPolicyFunc().Reset()
	time.Sleep(ms(100))
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.to)
}

func (s *seeker) SeekByTime(time.Time) error {
	s.reconnect()
	return nil
}

func TestConnectedAgainBeforeSeekReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newSeeker(t)
		s.acknowledge(t, c)
		require.Equal(t, 2, s.reconnect(), "acknowledged again")
		time.Sleep(time.Minute)
		require.Equal(t, 3, s.reconnect())
		require.NoError(t, c.SeekByTime(time.Now()))
		require.Equal(t, 3, s.reconnect())
		time.Sleep(time.Hour)

		s.acknowledge(t, c)
		time.Sleep(3 * time.Minute)
		require.Equal(t, 4, s.reconnect(), "the broker has it")
		require.Zero(t, c.Stats().Failed)
	})
}

// Upstream does not say which of many partitions is connected again. Where they all are at once, each acknowledgement is made again once, and
// not once for each of them.
func TestManyThatAreConnectedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newSeeker(t)
		s.acknowledge(t, c)
		for n := range 3 {
			for range 100 {
				s.opts.BackOffPolicyFunc().Reset()
			}
			require.Equal(t, n+2, s.reconnect())
		}
	})
}
