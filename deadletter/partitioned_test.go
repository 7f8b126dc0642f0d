package deadletter_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

// creates puts the test's topics into a namespace of their own, with a policy for topics that the broker creates on
// use.
func (b *broker) creates(policy map[string]any) {
	b.namespace = fmt.Sprintf("public/creates-%08x", rand.Uint32())
	b.callAdmin("PUT", "namespaces/"+b.namespace, map[string]any{"replication_clusters": []string{"standalone"}}, nil)
	if policy != nil {
		b.callAdmin("POST", "namespaces/"+b.namespace+"/autoTopicCreation", policy, nil)
	}
}

var creations = map[string]map[string]any{
	"partitioned": {"allowAutoTopicCreation": true, "topicType": "partitioned", "defaultNumPartitions": 3},
	"off":         {"allowAutoTopicCreation": false},
}

// The broker creates partitioned topics on use, or no topics. A replay, a purge and a canary work, and leave no
// journal.
func TestReplayWorksUnderEachPolicyOfTopicCreation(t *testing.T) {
	t.Parallel()
	for name, policy := range creations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := real(t)
			b.creates(policy)
			tp := b.topics(0)
			b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 3, tp.letters(9)...)
			d := b.open(tp.dlq)
			go func() { // a consumer that processes the canary
				c := b.subscribe(tp.retry, sub)
				defer c.Close()
				for {
					select {
					case msg := <-c.Chan():
						_ = c.Ack(msg)
					case <-t.Context().Done():
						return
					}
				}
			}()
			report, err := d.Replay(bg, deadletter.ReplayOptions{Canary: 1, Max: 4, CanaryTimeout: 30 * time.Second})
			require.NoError(t, err)
			require.Equal(t, 4, report.Done)
			require.Len(t, peek(t, d), 5, "Peek does not show exactly the letters that are left")
			report, err = d.Purge(bg, deadletter.PurgeOptions{Export: io.Discard})
			require.NoError(t, err)
			require.Equal(t, 5, report.Done)
			b.noJournal(tp)
			var partitioned []string
			b.callAdmin("GET", "persistent://"+b.namespace+"/partitioned", nil, &partitioned)
			require.NotContains(t, strings.Join(partitioned, " "), "-DLQ-")
		})
	}
}

// An earlier version may have left such a journal.
func TestReplayUsesAPartitionedJournal(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	b.create(tp.dlq+"-"+own, 3)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 3, tp.letters(9)...)
	d := b.open(tp.dlq)
	report, err := d.Replay(bg, deadletter.ReplayOptions{Max: 4})
	require.NoError(t, err)
	require.Equal(t, 4, report.Done)
	require.Len(t, peek(t, d), 5)
	report, err = d.Replay(bg, deadletter.ReplayOptions{})
	require.NoError(t, err)
	require.Equal(t, 5, report.Done)
	require.Equal(t, upTo(9), numbers(b.receive(tp.retry)))
	err = admin.Call(bg, b.admin, "GET", tp.dlq+"-"+own+"/partitions?checkAllowAutoCreation=false", nil, nil)
	require.True(t, admin.NotFound(err), "the journal stays: %v", err)
}

// There is no admin API, so the broker creates the journal, with partitions.
func TestReplayWithoutAdminAPIUsesAPartitionedJournal(t *testing.T) {
	t.Parallel()
	b := real(t)
	b.creates(creations["partitioned"])
	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 3, tp.letters(9)...)
	d := b.open(tp.dlq, func(o *deadletter.Options) { o.Admin = deadletter.Admin{} })
	for range 2 {
		_, err := d.Replay(bg, deadletter.ReplayOptions{Max: 4})
		require.NoError(t, err)
	}
	require.Equal(t, upTo(8), numbers(b.receive(tp.retry)))
}
