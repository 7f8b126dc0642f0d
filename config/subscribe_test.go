package config

import (
	"errors"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
)

// refusing is a client that notes with which options it is to subscribe, and does not.
type refusing struct {
	pulsar.Client
	opts []pulsar.ConsumerOptions
}

var errRefused = errors.New("refused")

func (r *refusing) TopicPartitions(topic string) ([]string, error) { return []string{topic}, nil }

func (r *refusing) Subscribe(opts pulsar.ConsumerOptions) (pulsar.Consumer, error) {
	r.opts = append(r.opts, opts)
	return nil, errRefused
}

// One call has the policies of Options and the topics of ConsumerOptions: with Options alone a message was delivered for ever.
func TestSubscribe(t *testing.T) {
	c, err := Load("testdata/redelivery.yaml")
	require.NoError(t, err)
	client := new(refusing)
	opts := pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing", Type: pulsar.Shared}
	_, err = c.Subscribe(client, "billing", opts)
	require.ErrorIs(t, err, errRefused)
	assert.Equal(t, []string{"orders", "persistent://public/default/orders-retry"}, client.opts[0].Topics)

	twoPolicies := opts
	twoPolicies.NackRedeliveryDelay = time.Second
	_, err = c.Subscribe(client, "billing", twoPolicies)
	assert.ErrorIs(t, err, redelivery.ErrInvalidOption, "the file's is there too")
	_, err = c.Subscribe(client, "billing", opts, redelivery.WithNackRedeliveryDelay(-1))
	assert.ErrorIs(t, err, redelivery.ErrInvalidOption, "options count")
	_, err = c.Subscribe(client, "biling", opts)
	assert.ErrorContains(t, err, `config: consumer is "biling"`)
	assert.Len(t, client.opts, 1)
}
