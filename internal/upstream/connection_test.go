package upstream_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/backoff"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/upstream"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// kinds are the kinds of consumers of pulsar-client-go. Each kind asks for backoffs in code of its own.
var kinds = []struct {
	name     string
	opts     pulsar.ConsumerOptions
	children int // topics and partitions
}{
	{"one topic", pulsar.ConsumerOptions{Topic: "t"}, 1},
	{"a partitioned topic", pulsar.ConsumerOptions{Topic: "p"}, 3},
	{"topics", pulsar.ConsumerOptions{Topics: []string{"t", "p"}}, 4},
	{"a pattern", pulsar.ConsumerOptions{TopicsPattern: "public/default/p.*"}, 3},
	{"without a queue", pulsar.ConsumerOptions{Topic: "t", EnableZeroQueueConsumer: true}, 1},
}

func TestRequestForABackoffIsALossUnlessGetLastMessageIDsMakesIt(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			broker := pulsartest.NewServer(t)
			require.NoError(t, broker.CreatePartitionedTopic("p", 3))
			var lost, asked atomic.Int32
			hooks := upstream.NewHooks(silent(upstream.Events{Lost: func() { lost.Add(1) }}))
			k.opts.Type = pulsar.Shared
			k.opts.BackOffPolicyFunc = func() backoff.Policy { asked.Add(1); return backoff.NewDefaultBackoff() }
			consumer := subscribe(t, broker.Client(t), hooks, k.opts, upstream.Plan{Channel: 10})
			require.Zero(t, lost.Load(), "subscribing counted as a loss")
			ids, err := consumer.GetLastMessageIDs()
			require.NoError(t, err)
			require.Len(t, ids, k.children)
			require.EqualValues(t, k.children, asked.Load(), "GetLastMessageIDs did not ask the application's policy")
			require.Zero(t, lost.Load())
			require.Zero(t, hooks.Reconnecting())

			broker.RefuseConnections(true)
			broker.DropConnections()
			require.Eventually(t, func() bool { return hooks.Reconnecting() == k.children }, waittest.Limit, time.Millisecond)
			require.EqualValues(t, k.children, lost.Load())
			require.EqualValues(t, 2*k.children, asked.Load())
			broker.RefuseConnections(false)
			require.Eventually(t, func() bool { return hooks.Reconnecting() == 0 }, waittest.Limit, time.Millisecond)
			require.EqualValues(t, k.children, lost.Load(), "the attempts of one reconnection were not one loss")
		})
	}
}

func TestUnloadOfOnePartitionIsALoss(t *testing.T) {
	broker := pulsartest.NewServer(t)
	require.NoError(t, broker.CreatePartitionedTopic("p", 3))
	lost := make(chan struct{}, 10)
	hooks := upstream.NewHooks(silent(upstream.Events{Lost: func() { lost <- struct{}{} }}))
	subscribe(t, broker.Client(t), hooks, pulsar.ConsumerOptions{Topic: "p"}, upstream.Plan{Channel: 10})
	broker.Unload("p-partition-1")
	waittest.Next(t, lost)
	require.Empty(t, lost)
}

// fixed is a backoff whose delay is its value.
type fixed struct {
	backoff.Policy
	delay time.Duration
	reset int
}

func (f *fixed) Next() time.Duration { return f.delay }
func (f *fixed) Reset()              { f.reset++ }

// ask returns the function of hooks that pulsar-client-go calls at each reconnection.
func ask(hooks *upstream.Hooks, of func() backoff.Policy) func() backoff.Policy {
	return hooks.Options(pulsar.ConsumerOptions{BackOffPolicyFunc: of}, upstream.Plan{}).BackOffPolicyFunc
}

func TestReconnectionsCountUntilTheyEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hooks, own := newHooks(), &fixed{delay: 10 * time.Minute}
		asks := ask(hooks, func() backoff.Policy { return own })
		first, second := asks(), asks()
		require.Equal(t, 2, hooks.Reconnecting())

		first.Reset()
		require.Equal(t, 1, own.reset, "the application's policy was not reset")
		require.Equal(t, 1, hooks.Reconnecting(), "the second reconnection does not count though it has not connected")

		require.Equal(t, 10*time.Minute, second.Next(), "the delay is not that of the application's policy")
		time.Sleep(12*time.Minute - time.Second)
		require.Equal(t, 1, hooks.Reconnecting(), "the second reconnection does not count during its pause and its attempt")
		time.Sleep(2 * time.Second)
		require.Zero(t, hooks.Reconnecting(), "the second reconnection counts though it has ended unnoticed")

		asks()
		hooks.Forget()
		require.Zero(t, hooks.Reconnecting(), "a reconnection counts though the consumer was closed")
	})
}

func TestReconnectionsThatEndedUnnoticedDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hooks := newHooks()
		asks := ask(hooks, nil)
		for range 1000 {
			asks() // a reconnection whose end is not reported
		}
		time.Sleep(time.Hour)
		var going []backoff.Policy
		for range 1000 {
			going = append(going, asks())
		}
		require.Equal(t, 1000, hooks.Reconnecting())
		for _, r := range going {
			r.Reset()
		}
		require.Zero(t, hooks.Reconnecting())
	})
}
