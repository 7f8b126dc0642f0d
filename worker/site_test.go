package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

var quiet = slog.New(slog.DiscardHandler)

// site is a topic of a broker: the real one that PULSAR_URL and PULSAR_ADMIN_URL name, or one in this process.
type site struct {
	testing.TB
	client    pulsar.Client
	url       string
	admin     string
	topic     string
	inProcess *pulsartest.Server // nil if the broker is a real one
}

func newSite(t testing.TB, inProcess ...pulsartest.Option) *site {
	url, admin := os.Getenv("PULSAR_URL"), os.Getenv("PULSAR_ADMIN_URL")
	if url == "" || admin == "" {
		return newSiteInProcess(t, inProcess...)
	}
	return (&site{TB: t, admin: admin}).connect(url)
}

func newSiteInProcess(t testing.TB, options ...pulsartest.Option) *site {
	server := pulsartest.NewServer(t, options...)
	return (&site{TB: t, admin: server.AdminURL(), inProcess: server}).connect(server.URL())
}

func (s *site) connect(url string) *site {
	s.url = url
	s.client = s.newClient()
	s.Cleanup(http.DefaultClient.CloseIdleConnections)
	s.topic = fmt.Sprintf("worker-%08x", rand.Uint32())
	return s
}

// newClient returns a client with connections of its own.
func (s *site) newClient() pulsar.Client {
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: s.url, Logger: logtest.Client(s), OperationTimeout: 3 * time.Second})
	require.NoError(s, err)
	s.Cleanup(client.Close)
	return client
}

func (s *site) subscribe(opts pulsar.ConsumerOptions, options ...redelivery.Option) *redelivery.Consumer {
	c, err := s.trySubscribe(opts, options...)
	require.NoError(s, err)
	return c
}

func (s *site) trySubscribe(opts pulsar.ConsumerOptions, options ...redelivery.Option) (*redelivery.Consumer, error) {
	opts.Topic, opts.SubscriptionName = s.topic, "sub"
	opts.SubscriptionInitialPosition = pulsar.SubscriptionPositionEarliest
	c, err := redelivery.Subscribe(s.client, opts, append(options, redelivery.WithLogger(logtest.Logger(s)))...)
	if err == nil {
		s.Cleanup(c.Close)
	}
	return c, err
}

// publish sends messages, in one batch or each by itself. The key is the payload.
func (s *site) publish(batched bool, payloads ...string) {
	producer, err := s.client.CreateProducer(pulsar.ProducerOptions{Topic: s.topic, DisableBatching: !batched,
		BatchingMaxMessages: uint(len(payloads)), BatchingMaxPublishDelay: time.Minute})
	require.NoError(s, err)
	defer producer.Close()
	for _, payload := range payloads {
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: []byte(payload), Key: payload},
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { assert.NoError(s, err) })
	}
	require.NoError(s, producer.FlushWithCtx(context.Background()))
}

// backlog returns how many entries of the subscription are not acknowledged.
func (s *site) backlog() int { return s.backlogOf(s.topic) }

func (s *site) backlogOf(topic string) int {
	var stats struct {
		Subscriptions map[string]struct {
			Backlog int `json:"msgBacklog"`
		} `json:"subscriptions"`
	}
	require.NoError(s, admin.Call(context.Background(), s.admin, "GET", admin.Topic(topicname.Full(topic))+"/stats", nil, &stats))
	return stats.Subscriptions["sub"].Backlog
}

// letters returns payloads and reasons of the dead letters, sorted.
func (s *site) letters() (all []string) {
	reader, err := s.client.CreateReader(pulsar.ReaderOptions{Topic: s.topic + "-sub-DLQ", StartMessageID: pulsar.EarliestMessageID()})
	require.NoError(s, err)
	defer reader.Close()
	for reader.HasNext() {
		msg, err := reader.Next(context.Background())
		require.NoError(s, err)
		all = append(all, string(msg.Payload())+": "+msg.Properties()["EXCEPTION_MESSAGE"])
	}
	slices.Sort(all)
	return all
}

var kinds = map[string]pulsar.SubscriptionType{
	"Exclusive": pulsar.Exclusive, "Failover": pulsar.Failover, "Shared": pulsar.Shared, "Key_Shared": pulsar.KeyShared,
}
