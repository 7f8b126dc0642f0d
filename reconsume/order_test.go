package reconsume_test

import (
	"bytes"
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

// Dead letters keep their order though empty and large ones have a producer of their own.
func TestOrderOfEmptyAndLargeDeadLetters(t *testing.T) {
	b := newBroker(t)
	dead := b.topic + "-sub-DLQ"
	dlq := b.subscribe(pulsar.ConsumerOptions{Topic: dead})
	c := b.subscribe(pulsar.ConsumerOptions{Topic: b.topic, Type: pulsar.Shared})
	r := b.reconsumer(reconsume.Options{})
	const n = 60
	var want, got []string
	var waits []func() error
	for i := range n {
		payload := []byte("x")
		switch i % 5 {
		case 1, 4:
			payload = []byte{}
		case 3:
			payload = bytes.Repeat([]byte("large"), 1<<18)
		}
		b.send(nil, &pulsar.ProducerMessage{Payload: payload, Key: "key", Properties: map[string]string{"number": fmt.Sprint(i)}})
		want = append(want, fmt.Sprint(i))
		waits = append(waits, publishing.PublisherOf(r).StartDeadLetter(in(time.Minute), b.receive(c), errors.New("bad")))
	}
	for _, wait := range waits {
		require.NoError(t, wait())
	}
	for range n {
		msg := b.receive(dlq)
		got = append(got, msg.Properties()["number"])
		require.NoError(t, dlq.Ack(msg))
	}
	require.Equal(t, strings.Join(want, " "), strings.Join(got, " "))
}
