package config

import (
	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
)

// Subscribe calls redelivery.Subscribe with all that the file says about a consumer: with ConsumerOptions of opts, and with Options,
// which options follow. It changes neither opts nor what it points to. It returns an error if the file does not name the consumer.
func (c *Config) Subscribe(client pulsar.Client, consumer string, opts pulsar.ConsumerOptions, options ...redelivery.Option) (
	*redelivery.Consumer, error) {
	found, err := c.consumer(consumer)
	if err != nil {
		return nil, err
	}
	return redelivery.Subscribe(client, found.apply(opts), append(found.options(), options...)...)
}
