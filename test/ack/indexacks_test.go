package ack

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// Subscribe switches batch-index acknowledgement on if upstream sends many acknowledgements in one command.
func TestSubscribeSwitchesIndexAcksOn(t *testing.T) {
	b := testkit.NewBroker(t)
	type options = pulsar.ConsumerOptions
	without := []redelivery.Option{redelivery.WithoutBatchIndexAcks()}
	for name, c := range map[string]struct {
		opts    options
		options []redelivery.Option
		want    bool
		stats   redelivery.IndexAcks
	}{
		"by default":                  {options{}, nil, true, redelivery.IndexAcksUnknown},
		"small groups":                {options{AckGroupingOptions: &pulsar.AckGroupingOptions{MaxSize: 10}}, nil, true, redelivery.IndexAcksUnknown},
		"no groups":                   {options{AckGroupingOptions: &pulsar.AckGroupingOptions{MaxSize: 1}}, nil, false, redelivery.IndexAcksOff},
		"with responses":              {options{AckWithResponse: true}, nil, false, redelivery.IndexAcksOff},
		"without":                     {options{}, without, false, redelivery.IndexAcksOff},
		"the caller's":                {options{EnableBatchIndexAcknowledgment: true}, nil, true, redelivery.IndexAcksKept},
		"the caller's, without":       {options{EnableBatchIndexAcknowledgment: true}, without, true, redelivery.IndexAcksKept},
		"the caller's, and responses": {options{EnableBatchIndexAcknowledgment: true, AckWithResponse: true}, nil, true, redelivery.IndexAcksKept},
	} {
		t.Run(name, func(t *testing.T) {
			opts := b.Options(b.NewTopic(0), pulsar.Shared)
			opts.EnableBatchIndexAcknowledgment, opts.AckWithResponse = c.opts.EnableBatchIndexAcknowledgment, c.opts.AckWithResponse
			opts.AckGroupingOptions = c.opts.AckGroupingOptions
			var got bool
			consumer, err := redelivery.SubscribeWith(func(prepared pulsar.ConsumerOptions) (pulsar.Consumer, error) {
				got = prepared.EnableBatchIndexAcknowledgment
				return b.Client.Subscribe(prepared)
			}, opts, c.options...)
			require.NoError(t, err)
			defer consumer.Close()
			require.Equal(t, c.want, got)
			require.Equal(t, c.stats, consumer.Stats().IndexAcks)
		})
	}
}

// A consumer has left in the middle of a batch. If the broker keeps batch-index acknowledgements, the next consumer
// gets the rest of the batch, and its Stats have IndexAcksKept. Otherwise it gets the whole batch.
func TestRestOfBatchComesAfterRestart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		server []pulsartest.Option
		again  bool
	}{
		"kept":    {[]pulsartest.Option{pulsartest.WithBatchIndexAcknowledgment()}, false},
		"ignored": {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{}, c.server...)
			const n = 10
			topic := b.NewTopic(0)
			first := b.Subscribe(b.Options(topic, pulsar.Shared))
			b.Send(topic, n, true)
			for i := range n {
				if msg := testkit.Receive(t, first); i == 2 || i == 7 {
					first.Nack(msg)
				} else {
					require.NoError(t, first.Ack(msg))
				}
			}
			require.Equal(t, n-2, first.Stats().Unfinished)
			first.Close()
			second := b.Subscribe(b.Options(topic, pulsar.Shared))
			var got []string
			testkit.Drain(t, second, time.Second, func(msg pulsar.Message) {
				got = append(got, string(msg.Payload()))
				require.NoError(t, second.Ack(msg))
			})
			if c.again {
				require.Len(t, got, n)
				require.Equal(t, redelivery.IndexAcksUnknown, second.Stats().IndexAcks)
			} else {
				require.Equal(t, []string{"2", "7"}, got)
				require.Equal(t, redelivery.IndexAcksKept, second.Stats().IndexAcks)
			}
			b.Settles(topic, 0)
		})
	}
}
