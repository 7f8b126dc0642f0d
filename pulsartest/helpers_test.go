package pulsartest

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

func TestPublishStoresEachFieldOfAMessage(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	k := subscribe(t, s.Client(t), pulsar.ConsumerOptions{Topic: "t", SubscriptionName: "s"})
	event := time.UnixMilli(1_700_000_000_000)
	ids := s.Publish(t, "t",
		&pulsar.ProducerMessage{Payload: []byte("0"), Key: "k", OrderingKey: "o",
			Properties: map[string]string{"a": "b"}, EventTime: event},
		&pulsar.ProducerMessage{Payload: []byte("1")})
	require.Len(t, ids, 2)
	m := receive(t, k)
	require.Equal(t, "0", string(m.Payload()))
	require.Equal(t, "k", m.Key())
	require.Equal(t, "o", m.OrderingKey())
	require.Equal(t, map[string]string{"a": "b"}, m.Properties())
	require.True(t, event.Equal(m.EventTime()))
	require.WithinDuration(t, time.Now(), m.PublishTime(), time.Minute)
	require.Equal(t, ids[0].Entry, m.ID().EntryID())
	require.Equal(t, "1", string(receive(t, k).Payload()))
	require.Len(t, s.Messages("t"), 2)
}

func TestPublishChoosesPartitionsAsTheClientDoes(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	require.NoError(t, s.CreatePartitionedTopic("t", 5))
	p := newProducer(t, s.Client(t), pulsar.ProducerOptions{Topic: "t", DisableBatching: true})
	for i := range 20 {
		m := &pulsar.ProducerMessage{Payload: []byte("x"), Key: fmt.Sprint("key-", i, "ä")}
		id, err := p.Send(context.Background(), m)
		require.NoError(t, err)
		require.EqualValues(t, id.PartitionIdx(), s.Publish(t, "t", m)[0].Partition, m.Key)
	}
	seen := map[int]bool{}
	for range 5 {
		seen[s.Publish(t, "t", &pulsar.ProducerMessage{})[0].Partition] = true
	}
	require.Len(t, seen, 5)
}

// A recorder is a testing.TB whose failure is expected.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Helper() {}
func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	panic(r)
}

// failureOf returns the message with which f fails its test.
func failureOf(t *testing.T, f func(t testing.TB)) string {
	r := &recorder{TB: t}
	defer func() { _ = recover() }()
	func() {
		defer func() { _ = recover() }()
		f(r)
	}()
	return r.failure
}

func TestPublishThatFailsNamesTopicAndCause(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	s.Publish(t, "ended", &pulsar.ProducerMessage{})
	s.Terminate("ended")
	for topic, says := range map[string]string{
		"ended":                   "message 1 of 1 to ended: topic was terminated",
		"other://a":               "no such domain",
		"persistent://no/where/t": "Namespace no/where does not exist",
	} {
		require.Contains(t, failureOf(t, func(t testing.TB) { s.Publish(t, topic, &pulsar.ProducerMessage{}) }), says)
	}
	require.Contains(t, failureOf(t, func(t testing.TB) {
		s.Publish(t, "t", &pulsar.ProducerMessage{Value: "v", Schema: pulsar.NewStringSchema(nil)})
	}), "message 1 of 1 to t: field Value is set, want the encoded value in Payload")
	require.NoError(t, s.CreateNamespace("no/where"))
	s.Publish(t, "persistent://no/where/t", &pulsar.ProducerMessage{})
	require.Error(t, s.CreateNamespace("no"))
}

func TestAwaitReturnsTheStateOrFailsWithTheStatesItSaw(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	k := subscribe(t, s.Client(t),
		pulsar.ConsumerOptions{Topic: "t", SubscriptionName: "s", Type: pulsar.Shared, Name: "me"})
	s.Publish(t, "t", &pulsar.ProducerMessage{}, &pulsar.ProducerMessage{})
	require.NoError(t, k.Ack(receive(t, k)))
	state := s.Await(t, "t", "s", 5*time.Second, func(s Subscription) bool { return s.Backlog == 1 })
	require.Equal(t, 2, state.Delivered)

	failure := failureOf(t, func(t testing.TB) {
		s.Await(t, "t", "s", 20*time.Millisecond, func(s Subscription) bool { return s.Backlog == 0 })
	})
	require.Regexp(t, regexp.MustCompile(`^pulsartest: subscription s of t did not reach the awaited state within 20ms; its states were
 +\S+  Shared, backlog 1, unacked 1, delayed 0, delivered 2, redelivered 0; consumer me: permits 998, unacked 1, delivered 2$`), failure)
	require.Contains(t, failureOf(t, func(t testing.TB) {
		s.Await(t, "t", "other", time.Millisecond, func(s Subscription) bool { return s.Backlog > 0 })
	}), "no such subscription")
}

func TestAwaitThatFailsShowsTheFirstAndTheLastStates(t *testing.T) {
	t.Parallel()
	var failure string
	for patience, backlog := 200*time.Millisecond, 0; backlog < 12; patience *= 2 {
		// on a busy computer twelve changes take longer
		s := NewServer(t)
		subscribe(t, s.Client(t), pulsar.ConsumerOptions{Topic: "t", SubscriptionName: "s"})
		failure = failureOf(t, func(tb testing.TB) {
			s.Await(tb, "t", "s", patience, func(state Subscription) bool {
				backlog = state.Backlog
				if backlog < 12 {
					s.Publish(t, "t", &pulsar.ProducerMessage{})
				}
				return false
			})
		})
	}
	require.Contains(t, failure, "backlog 0, ")
	require.NotContains(t, failure, "backlog 1, ")
	require.Contains(t, failure, "backlog 12, ")
}

func TestFastForwardDeliversMessagesWhoseDelaysEnd(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]Option{"lax": nil, "exact": {WithExactDelays()}} {
		t.Run(name, func(t *testing.T) {
			s := NewServer(t, options...)
			c, k, p := newPair(t, s)
			_, err := p.Send(context.Background(),
				&pulsar.ProducerMessage{Payload: []byte("by a client"), DeliverAfter: time.Hour})
			require.NoError(t, err)
			s.Publish(t, "t", &pulsar.ProducerMessage{Payload: []byte("by the server"), DeliverAfter: 2 * time.Hour})
			s.Await(t, "t", "s", 5*time.Second, func(s Subscription) bool { return s.Delayed == 2 })
			s.FastForward(time.Hour - 5*time.Minute)
			receiveNothing(t, k)
			s.FastForward(5 * time.Minute)
			require.Equal(t, "by a client", string(receive(t, k).Payload()))
			receiveNothing(t, k)
			s.FastForward(time.Hour)
			require.Equal(t, "by the server", string(receive(t, k).Payload()))
			s.FastForward(-time.Hour) // does nothing
			s.Publish(t, "t", &pulsar.ProducerMessage{Payload: []byte("later"), DeliverAfter: 3 * time.Second})
			receiveNothing(t, k)
			s.FastForward(3 * time.Second)
			receive(t, k)
			c.Close()
		})
	}
}

func TestFastForwardEndsTheDelayOfFailover(t *testing.T) {
	t.Parallel()
	s := NewServer(t, WithFailoverDelay(time.Hour))
	s.Publish(t, "t", &pulsar.ProducerMessage{})
	k := subscribe(t, s.Client(t), pulsar.ConsumerOptions{Topic: "t", SubscriptionName: "s", Type: pulsar.Failover,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
	receiveNothing(t, k)
	s.FastForward(time.Hour)
	receive(t, k)
}

// A timer that fires while FastForward moves the clock must not run its function twice.
func TestFastForwardRunsATimerOnce(t *testing.T) {
	t.Parallel()
	s := NewServer(t, WithExactDelays())
	k := subscribe(t, s.Client(t), pulsar.ConsumerOptions{Topic: "t", SubscriptionName: "s", Type: pulsar.Shared})
	for i := range 200 {
		s.Publish(t, "t", &pulsar.ProducerMessage{Payload: []byte{byte(i)}, DeliverAfter: time.Millisecond})
		s.FastForward(time.Millisecond)
		require.Equal(t, []byte{byte(i)}, receive(t, k).Payload())
	}
	s.Await(t, "t", "s", time.Second, func(s Subscription) bool { return s.Delivered == 200 && s.Delayed == 0 })
}
