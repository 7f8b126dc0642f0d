package pulsartest

import (
	"log/slog"
	"time"
)

// An Option changes a Server before it starts.
type Option func(*settings)

type settings struct {
	brokerAddr, adminAddr string
	logger                *slog.Logger
	maxMessageSize        int
	strictDelay           bool
	delayTick             time.Duration
	failoverDelay         time.Duration
	maxUnackedConsumer    int
	maxUnackedSub         int
	noAutoCreate          bool
	indexAcks             bool
}

func defaults() settings {
	return settings{
		brokerAddr:         "127.0.0.1:0",
		adminAddr:          "127.0.0.1:0",
		logger:             slog.Default(),
		maxMessageSize:     5 * 1024 * 1024,
		delayTick:          time.Second,
		failoverDelay:      time.Second,
		maxUnackedConsumer: 50_000,
		maxUnackedSub:      200_000,
	}
}

// WithAddresses sets where the broker and its admin API listen, as for net.Listen. By default both choose a free port
// of 127.0.0.1.
func WithAddresses(broker, admin string) Option {
	return func(s *settings) { s.brokerAddr, s.adminAddr = broker, admin }
}

// WithLogger sets where the server logs: bad input at Warn, connections, producers and consumers at Debug. By default
// warnings go to the test, or to slog.Default if the server was started without a test.
func WithLogger(logger *slog.Logger) Option {
	return func(s *settings) { s.logger = logger }
}

// WithMaxMessageSize sets the size of the largest message, in bytes. By default it is 5 MiB, as in the real broker.
// Clients learn the limit when they connect.
func WithMaxMessageSize(bytes int) Option {
	return func(s *settings) { s.maxMessageSize = bytes }
}

// WithExactDelays makes delayed delivery exact: a message comes when it is due. By default delivery is inexact, as in
// the real broker: a message comes up to a second early while the broker is busy with the subscription, and up to a
// second late while the subscription is idle.
func WithExactDelays() Option {
	return func(s *settings) { s.strictDelay = true }
}

// WithFailoverDelay sets how long a new active consumer of a Failover subscription waits for its first message. By
// default it is one second, as in the real broker.
func WithFailoverDelay(d time.Duration) Option {
	return func(s *settings) { s.failoverDelay = d }
}

// WithMaxUnacked limits the unacknowledged messages of each consumer and of each subscription. When a limit is reached,
// the broker sends no more messages. By default the limits are 50,000 and 200,000, as in the real broker. Zero means no
// limit. The limits apply to Shared and Key_Shared.
func WithMaxUnacked(perConsumer, perSubscription int) Option {
	return func(s *settings) { s.maxUnackedConsumer, s.maxUnackedSub = perConsumer, perSubscription }
}

// WithBatchIndexAcknowledgment lets consumers acknowledge single messages of a batch, as a broker with
// acknowledgmentAtBatchIndexLevelEnabled=true does. By default, as in Pulsar, the server answers such acknowledgements
// but ignores them: it sends the whole batch again until one client has acknowledged all of its messages. Clients need
// pulsar.ConsumerOptions.EnableBatchIndexAcknowledgment, too.
func WithBatchIndexAcknowledgment() Option {
	return func(s *settings) { s.indexAcks = true }
}

// WithoutTopicCreation makes a lookup, producer or consumer fail with TopicNotFound if its topic does not exist. By
// default topics are created on use.
func WithoutTopicCreation() Option {
	return func(s *settings) { s.noAutoCreate = true }
}
