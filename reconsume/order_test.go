package reconsume_test

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// starts begin to publish a message to the topic with this name.
var starts = map[string]func(publishing.Publisher, pulsar.ConsumerMessage) func() error{
	"DLQ": func(p publishing.Publisher, cm pulsar.ConsumerMessage) func() error {
		return p.StartDeadLetter(within(time.Minute), cm, errors.New("bad"), &publishing.Note{})
	},
	"RETRY": func(p publishing.Publisher, cm pulsar.ConsumerMessage) func() error {
		return p.StartLater(within(time.Minute), cm, publishing.Retry{}, &publishing.Note{})
	},
}

// onEachTopic calls test for retries and for dead letters. start receives a message and begins to publish it, and
// published reads the topic.
func onEachTopic(t *testing.T, test func(t *testing.T, b *broker, start func() (wait func() error),
	published pulsar.Consumer)) {
	t.Parallel()
	for name, start := range starts {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t)
			published := b.subscribe(pulsar.ConsumerOptions{Topic: b.topic + "-sub-" + name})
			c := b.subscribe(pulsar.ConsumerOptions{Topic: b.topic, Type: pulsar.Shared})
			r := b.reconsumer(reconsume.Options{})
			test(t, b, func() func() error { return start(r.Publisher(false), b.receive(c)) }, published)
		})
	}
}

// Empty and large messages have a producer of their own, and one that is larger than all before goes alone.
func TestDeadLettersAndRetriesKeepTheirOrder(t *testing.T) {
	onEachTopic(t, func(t *testing.T, b *broker, start func() (wait func() error), published pulsar.Consumer) {
		const n = 100
		var want, got []string
		var waits []func() error
		for i := range n {
			payload := []byte("x")
			switch i % 5 {
			case 1, 4:
				payload = []byte{}
			case 2:
				payload = bytes.Repeat([]byte("growing"), 1000+i)
			case 3:
				payload = bytes.Repeat([]byte("large"), 1<<18)
			}
			b.send(nil, &pulsar.ProducerMessage{Payload: payload, Key: "key",
				Properties: map[string]string{"number": fmt.Sprint(i)}})
			want = append(want, fmt.Sprint(i))
			waits = append(waits, start())
		}
		for _, wait := range waits {
			require.NoError(t, wait())
		}
		for range n {
			msg := b.receive(published)
			got = append(got, msg.Properties()["number"])
			require.NoError(t, published.Ack(msg))
		}
		require.Equal(t, strings.Join(want, " "), strings.Join(got, " "))
	})
}

// A message with an ordering key is not in a batch. It does not overtake a batch that upstream has not sent yet.
func TestMessagesWithAndWithoutOrderingKeysKeepTheirOrder(t *testing.T) {
	onEachTopic(t, func(t *testing.T, b *broker, start func() (wait func() error), published pulsar.Consumer) {
		const n = 100
		var msgs []*pulsar.ProducerMessage
		for i := range n {
			msg := &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(i)), Key: "key"}
			if i%4 == 3 {
				msg.OrderingKey = "ordering"
			}
			msgs = append(msgs, msg)
		}
		b.send(nil, msgs...)
		var waits []func() error
		for range n {
			waits = append(waits, start())
		}
		for _, wait := range waits {
			require.NoError(t, wait())
		}
		for i := range n {
			require.Equal(t, fmt.Sprint(i), string(b.receive(published).Payload()))
		}
	})
}

// Upstream writes the properties of a batch's first message twice. So the batch would be too large.
func TestMessageWithLargePropertiesIsPublished(t *testing.T) {
	b := newBroker(t)
	dlq := b.subscribe(pulsar.ConsumerOptions{Topic: b.topic + "-sub-DLQ"})
	retries := b.subscribe(pulsar.ConsumerOptions{Topic: b.topic + "-sub-RETRY", Type: pulsar.Shared})
	c := b.subscribe(pulsar.ConsumerOptions{Topic: b.topic, Type: pulsar.Shared})
	r := b.reconsumer(reconsume.Options{})
	p, err := b.client.CreateProducer(pulsar.ProducerOptions{Topic: b.topic, DisableBatching: true})
	require.NoError(t, err)
	defer p.Close()
	random := make([]byte, 1400<<10) // so that compression does not help
	_, _ = rand.Read(random)
	large := map[string]string{"p": hex.EncodeToString(random)}
	_, err = p.Send(bg, &pulsar.ProducerMessage{Payload: []byte("x"), Properties: large})
	require.NoError(t, err)
	require.NoError(t, r.LaterAfter(within(10*time.Second), b.receive(c), 0, nil))
	require.NoError(t, r.DeadLetter(within(10*time.Second), b.receive(retries), nil))
	require.Equal(t, large["p"], b.receive(dlq).Properties()["p"])
}
