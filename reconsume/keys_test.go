package reconsume_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// Many keys are published at the same time, and a batch must not mix them.
func TestEachKeyGoesToOneOfTwoKeySharedConsumers(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(i int) *pulsar.ProducerMessage{
		"keys": func(i int) *pulsar.ProducerMessage { return &pulsar.ProducerMessage{Key: fmt.Sprint("key ", i)} },
		"ordering keys": func(i int) *pulsar.ProducerMessage {
			return &pulsar.ProducerMessage{OrderingKey: fmt.Sprint("key ", i)}
		},
		"ordering keys, and one key": func(i int) *pulsar.ProducerMessage {
			return &pulsar.ProducerMessage{Key: "same", OrderingKey: fmt.Sprint("key ", i)}
		},
	} {
		for _, dead := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, dead letters %t", name, dead), func(t *testing.T) {
				t.Parallel()
				b := newBroker(t)
				const n, keys = 200, 40
				target := b.topic + "-sub-RETRY"
				if dead {
					target = b.topic + "-sub-DLQ"
				}
				var owners []pulsar.Consumer
				for range 2 {
					owners = append(owners, b.subscribe(pulsar.ConsumerOptions{Topic: target, Type: pulsar.KeyShared}))
				}
				c := b.subscribe(pulsar.ConsumerOptions{Topic: b.topic, Type: pulsar.Shared})
				var msgs []*pulsar.ProducerMessage
				for i := range n {
					m := of(i % keys)
					m.Payload = fmt.Append(nil, i)
					msgs = append(msgs, m)
				}
				b.send(nil, msgs...)
				r := b.reconsumer(reconsume.Options{})
				var failures sync.WaitGroup
				for range n {
					cm := b.receive(c)
					failures.Go(func() {
						publish := func() error { return r.LaterAfter(within(time.Minute), cm, 0, nil) }
						if dead {
							publish = func() error { return r.DeadLetter(within(time.Minute), cm, errors.New("bad")) }
						}
						if err := publish(); err != nil {
							t.Error(err)
						}
					})
				}
				failures.Wait()
				seen := map[string]map[int]bool{}
				for range n {
					var msg pulsar.ConsumerMessage
					owner := 0
					select {
					case msg = <-owners[0].Chan():
					case msg = <-owners[1].Chan():
						owner = 1
					case <-time.After(20 * time.Second):
						t.Fatal("a message is lost")
					}
					key := msg.OrderingKey()
					if key == "" {
						key = msg.Key()
					}
					if seen[key] == nil {
						seen[key] = map[int]bool{}
					}
					seen[key][owner] = true
				}
				require.Len(t, seen, keys)
				both, first := 0, 0
				for _, owners := range seen {
					if len(owners) == 2 {
						both++
					} else if owners[0] {
						first++
					}
				}
				require.Zero(t, both, "keys that came to both consumers")
				require.NotContains(t, []int{0, keys}, first, "keys of the first consumer")
			})
		}
	}
}

// A plain consumer that nacks a dead letter gets that letter again, but no letter that it has acknowledged.
func TestNackedLetterComesAlone(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	dead := b.subscribe(pulsar.ConsumerOptions{Topic: b.topic + "-sub-DLQ", Type: pulsar.Shared,
		NackRedeliveryDelay: 100 * time.Millisecond})
	c := b.subscribe(pulsar.ConsumerOptions{Topic: b.topic, Type: pulsar.Shared})
	const n = 50
	for i := range n {
		b.send(nil, &pulsar.ProducerMessage{Payload: fmt.Append(nil, i)})
	}
	r := b.reconsumer(reconsume.Options{})
	var failures sync.WaitGroup
	for range n {
		cm := b.receive(c)
		failures.Go(func() {
			if err := r.DeadLetter(within(time.Minute), cm, errors.New("bad")); err != nil {
				t.Error(err)
			}
		})
	}
	failures.Wait()
	failed, acked := false, map[string]bool{}
	for len(acked) < n {
		letter := b.receive(dead)
		text := string(letter.Payload())
		require.False(t, acked[text], text)
		if text == "7" && !failed {
			failed = true
			dead.Nack(letter)
			continue
		}
		acked[text] = true
		require.NoError(t, dead.Ack(letter))
	}
	b.receivesNothing(dead, time.Second)
}

// The namespace refuses the delay of a retry that the Consumer holds back. In a batch, the retry would lose its ordering
// key, or have the version of the consumer's schema instead of its own.
func TestRetryWhoseDelayIsRefusedIsPublishedOutsideOfABatch(t *testing.T) {
	for _, schema := range []pulsar.Schema{nil, orders2} {
		run(t, reconsume.Options{Schema: schema}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			c.lost = func(m *pulsar.ProducerMessage) bool { return m.DeliverAfter > time.Minute }
			cm := pulsar.ConsumerMessage{Consumer: acks, Message: message{}}
			require.NoError(t, r.Publisher(true).StartLater(bg, cm, publishing.Retry{Delay: time.Hour},
				&publishing.Note{})())
			require.Zero(t, c.sent[retries][0].DeliverAfter)
			require.False(t, c.sent[retries][0].DeliverAt.IsZero(), "the retry is in a batch")
		})
	}
}
