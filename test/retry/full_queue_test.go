package retry

import (
	"context"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// Each time a batch comes again without its acknowledged messages, pulsar-client-go permits the broker more messages
// than its queue holds. While its queue is full, pulsar-client-go reads no answers of the broker.
func TestMessageIsSettledWhileTheQueueIsFull(t *testing.T) {
	t.Parallel()
	for name, publish := range map[string]func(*redelivery.Consumer, pulsar.Message) error{
		"acknowledgement with response": func(c *redelivery.Consumer, msg pulsar.Message) error { return c.Ack(msg) },
		"retry": func(c *redelivery.Consumer, msg pulsar.Message) error {
			return c.ReconsumeLaterAfter(context.Background(), msg, time.Second, nil)
		},
		"dead letter": func(c *redelivery.Consumer, msg pulsar.Message) error {
			return c.DeadLetter(context.Background(), msg, nil)
		},
	} {
		for _, channel := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", Chan", false: ", Receive"}[channel], func(t *testing.T) {
				t.Parallel()
				b := testkit.NewBroker(t, pulsartest.WithBatchIndexAcknowledgment())
				topic := b.NewTopic(0)
				opts := b.RetryOptions(topic, 1000)
				opts.ReceiverQueueSize = 1
				opts.AckWithResponse = name == "acknowledgement with response"
				c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(0),
					redelivery.WithRedeliveryFrom(redelivery.FromBroker))
				next := func() pulsar.Message {
					ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
					defer cancel()
					msg, err := testkit.Take(ctx, c, channel)
					require.NoError(t, err)
					return msg
				}
				b.Send(topic, 50, true)
				for range 49 {
					require.NoError(t, c.Ack(next()))
				}
				last := next()
				for range 3 {
					time.Sleep(300 * time.Millisecond) // until the broker has the acknowledgements
					c.Nack(last)
					last = next()
				}
				producers, err := pulsar.NewClient(pulsar.ClientOptions{URL: b.URL})
				require.NoError(t, err)
				defer producers.Close()
				p, err := producers.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
				require.NoError(t, err)
				for range 100 {
					_, err = p.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte("more")})
					require.NoError(t, err)
				}
				begin := time.Now()
				require.NoError(t, publish(c, last))
				require.Less(t, time.Since(begin), 10*time.Second)
				for range 100 {
					require.NoError(t, c.Ack(next()))
				}
			})
		}
	}
}

// While the retry topic does not answer, the Consumer takes hardly more messages than its queue holds, so that other
// consumers can handle the rest.
func TestUnansweredPublicationTakesNoMessagesFromOthers(t *testing.T) {
	t.Parallel()
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	topic := b.NewTopic(0)
	opts := b.RetryOptions(topic, 1000)
	opts.ReceiverQueueSize = 10
	c := b.Subscribe(opts)
	b.InProcess.Inject("SEND", testkit.RetryTopic(topic), -1, pulsartest.Drop)
	b.Send(topic, 1000, false)
	msg := testkit.Receive(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	require.ErrorIs(t, c.ReconsumeLaterNext(ctx, msg), context.DeadlineExceeded)
	require.LessOrEqual(t, b.Stats(topic, 0).Unacked, 2*10+10)
}
