package subscribe

import (
	"errors"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func TestSubscribeErrorNamesTopicAndSubscription(t *testing.T) {
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{}, pulsartest.WithoutTopicCreation())
	opts := pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing"}
	_, err := redelivery.Subscribe(b.Client, opts)
	require.ErrorContains(t, err, `redelivery: subscribing "billing" to orders: `)
	require.ErrorContains(t, err, "TopicNotFound")

	b = testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	first, err := redelivery.Subscribe(b.Client, opts)
	require.NoError(t, err)
	defer first.Close()
	_, err = redelivery.Subscribe(b.Client, opts)
	require.ErrorContains(t, err, `redelivery: subscribing "billing" to orders: `)
	require.ErrorContains(t, err, "ConsumerBusy")
}

// Programs use the type of the error, as pulsar-client-go's own tests do.
func TestSubscribeErrorAboutOptionsIsUnchanged(t *testing.T) {
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	_, err := redelivery.Subscribe(b.Client, pulsar.ConsumerOptions{Topic: "orders"})
	require.IsType(t, &pulsar.Error{}, err)
}

func TestSubscribeErrorNamesScalableTopics(t *testing.T) {
	const said = "a scalable topic of Pulsar 5, which pulsar-client-go cannot read"
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	_, err := redelivery.Subscribe(b.Client,
		pulsar.ConsumerOptions{Topic: "topic://public/default/orders", SubscriptionName: "s"})
	require.ErrorContains(t, err, said)
	_, err = redelivery.Subscribe(migrated{b.Client},
		pulsar.ConsumerOptions{Topics: []string{"orders", "tea"}, SubscriptionName: "s"})
	require.ErrorContains(t, err, `subscribing "s" to orders, tea: `+said)
	require.ErrorIs(t, err, errMigrated)
}

// migrated is a client with a broker that answers like Pulsar 5 for a migrated topic.
type migrated struct{ pulsar.Client }

var errMigrated = errors.New("server error: TopicMigrated: orders was migrated")

func (migrated) Subscribe(pulsar.ConsumerOptions) (pulsar.Consumer, error) { return nil, errMigrated }
