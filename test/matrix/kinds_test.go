package matrix

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// consumerKind is a kind of consumer that upstream can make.
type consumerKind struct {
	topics     int // 0 means 1
	partitions int // of each topic; 0 for none
	pattern    bool
	compacted  bool
	options    func(*pulsar.ConsumerOptions)
	producer   func(*pulsar.ProducerOptions)
	message    func(payload string) *pulsar.ProducerMessage // if nil, payload is the key and the payload
	payload    func(*testing.T, pulsar.Message) string      // decodes what message made; nil for none
	unbatched  bool                                         // the messages cannot be batched
	change     func(*cell)                                  // changes the topics after Subscribe
	check      func(*cell)                                  // called at the end
	refused    map[string]string                            // by feature: the error with which Subscribe refuses it
}

var consumerKinds = map[string]consumerKind{
	"plain":            {},
	"partitioned":      {partitions: 3},
	"partitions-added": {partitions: 1, change: addPartitions, options: discoveringSlowly},
	"multi-topic":      {topics: 3},
	"pattern":          {topics: 3, pattern: true, change: found, options: discovering},
	"topics-appear":    {topics: 1, pattern: true, change: appear, options: discovering},
	"topics-vanish":    {topics: 3, pattern: true, change: vanish, options: discovering},
	"zero-queue": {
		options: func(o *pulsar.ConsumerOptions) { o.EnableZeroQueueConsumer = true },
		refused: map[string]string{"reconsume": "ZeroQueueConsumer is not supported with RetryEnable"},
	},
	"message-channel": {
		options: func(o *pulsar.ConsumerOptions) { o.MessageChannel = make(chan pulsar.ConsumerMessage, 3) },
	},
	"ack-with-response": {options: func(o *pulsar.ConsumerOptions) { o.AckWithResponse = true }},
	"batch-index-acks":  {options: func(o *pulsar.ConsumerOptions) { o.EnableBatchIndexAcknowledgment = true }},
	"acks-at-once": {
		options: func(o *pulsar.ConsumerOptions) { o.AckGroupingOptions = &pulsar.AckGroupingOptions{MaxSize: 1} },
	},
	"acks-grouped": {
		options: func(o *pulsar.ConsumerOptions) {
			o.AckGroupingOptions = &pulsar.AckGroupingOptions{MaxSize: 100, MaxTime: 600 * time.Millisecond}
		},
	},
	"json-schema": {
		options:  func(o *pulsar.ConsumerOptions) { o.Schema = jsonSchema },
		producer: func(o *pulsar.ProducerOptions) { o.Schema = jsonSchema },
		message:  orderMessage, payload: orderID,
	},
	"avro-schema": {
		options:  func(o *pulsar.ConsumerOptions) { o.Schema = avroSchema },
		producer: func(o *pulsar.ProducerOptions) { o.Schema = avroSchema },
		message:  orderMessage, payload: orderID,
	},
	"encrypted": {
		options:  func(o *pulsar.ConsumerOptions) { o.Decryption = testkit.NewKeyReader().Decryption() },
		producer: func(o *pulsar.ProducerOptions) { o.Encryption = testkit.NewKeyReader().Encryption(testkit.KeyName) },
	},
	"interceptors": {
		options: func(o *pulsar.ConsumerOptions) { o.Interceptors = pulsar.ConsumerInterceptors{&testkit.Witness{}} },
		check: func(x *cell) {
			consumers, consumed, acked, _ := x.opts.Interceptors[0].(*testkit.Witness).Seen()
			require.Equal(x.t, []pulsar.Consumer{x.c}, consumers)
			require.NotZero(x.t, consumed)
			require.NotZero(x.t, acked)
		},
	},
	"compacted": {
		compacted: true,
		options:   func(o *pulsar.ConsumerOptions) { o.Type, o.ReadCompacted = pulsar.Exclusive, true },
	},
	"chunked": {
		producer: chunking, message: large, payload: small, unbatched: true,
	},
	"chunked-multi-topic": {
		topics: 2, producer: chunking, message: large, payload: small, unbatched: true,
	},
}

func TestKinds(t *testing.T) {
	t.Parallel()
	for kindName, kind := range consumerKinds {
		t.Run(kindName, func(t *testing.T) {
			t.Parallel()
			if kind.pattern && testkit.InOwnProcess(t) {
				return
			}
			for featureName, f := range features {
				if kind.unbatched && f.batched {
					continue
				}
				t.Run(featureName, func(t *testing.T) {
					t.Parallel()
					runCell(t, kind, f, kind.refused[featureName])
				})
			}
		})
	}
}

// cell is the test of a feature with a kind of consumer.
type cell struct {
	*testkit.Broker
	t       *testing.T
	kind    consumerKind
	topics  []string
	removed []string
	opts    pulsar.ConsumerOptions
	c       *redelivery.Consumer

	published bool // the messages were published before Subscribe
	received  int
	last      pulsar.Message // the received message with the highest id
}

func runCell(t *testing.T, kind consumerKind, f feature, refused string) {
	x := &cell{Broker: testkit.NewBroker(t), t: t, kind: kind}
	x.topics = []string{x.NewTopic(kind.partitions)}
	for i := 1; i < kind.topics; i++ {
		x.addTopic()
	}
	x.opts = x.Options("", pulsar.Shared)
	switch {
	case kind.pattern:
		x.opts.TopicsPattern = x.topics[0] + "(-[0-9])?$"
	case kind.topics > 1:
		x.opts.Topics = x.topics
	default:
		x.opts.Topic = x.topics[0]
	}
	if kind.options != nil {
		kind.options(&x.opts)
	}
	if f.dlq != nil {
		f.dlq(&x.opts)
		x.opts.DLQ.DeadLetterTopic = testkit.DeadLetterTopic(x.topics[0])
		x.opts.DLQ.RetryLetterTopic = testkit.RetryTopic(x.topics[0])
		if kind.producer != nil {
			kind.producer(&x.opts.DLQ.ProducerOptions)
		}
	}
	if kind.compacted {
		x.compact(f)
	}
	c, err := x.TrySubscribe(x.opts, f.options...)
	if refused != "" {
		require.ErrorContains(t, err, refused)
		return
	}
	require.NoError(t, err)
	x.c = c
	if kind.change != nil {
		kind.change(x)
	}
	f.test(x)
	x.nothing()
	if kind.compacted { // compacted messages cannot be acknowledged one by one
		require.NoError(t, c.AckCumulative(x.last))
	}
	for _, topic := range x.topics {
		x.Settles(topic, x.kind.partitions)
	}
	if f.dlq != nil && x.opts.RetryEnable {
		x.Settles(testkit.RetryTopic(x.topics[0]), 0)
	}
	require.Zero(t, c.Stats().Failed)
	if len(x.removed) == 0 {
		require.Zero(t, c.Stats().Waiting)
	}
	if kind.check != nil {
		kind.check(x)
	}
}

func (x *cell) addTopic() {
	topic := fmt.Sprintf("%s-%d", x.topics[0], len(x.topics))
	x.Admin("PUT", topic, "", nil, nil)
	x.topics = append(x.topics, topic)
}

// publish publishes messages with the payloads "0" to "n-1": single messages to all topics and partitions in turn, or a
// batch to the last topic.
func (x *cell) publish(n int, batched bool) {
	x.t.Helper()
	if x.published {
		return
	}
	topics := x.topics
	if batched {
		topics = topics[len(topics)-1:]
	}
	for first, topic := range topics {
		opts := pulsar.ProducerOptions{Topic: topic, DisableBatching: !batched}
		if batched {
			opts.BatchingMaxMessages, opts.BatchingMaxPublishDelay = uint(n), time.Minute
		}
		opts.MessageRouter = func(m *pulsar.ProducerMessage, meta pulsar.TopicMetadata) int {
			if batched {
				return int(meta.NumPartitions()) - 1
			}
			return int(m.Key[0]) % int(meta.NumPartitions())
		}
		if x.kind.producer != nil {
			x.kind.producer(&opts)
		}
		p, err := x.Client.CreateProducer(opts)
		require.NoError(x.t, err)
		defer p.Close()
		for i := first; i < n; i += len(topics) {
			m := &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(i))}
			if x.kind.message != nil {
				m = x.kind.message(fmt.Sprint(i))
			}
			m.Key = fmt.Sprint(i)
			p.SendAsync(context.Background(), m,
				func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { assert.NoError(x.t, err) })
		}
		require.NoError(x.t, p.FlushWithCtx(context.Background()))
	}
}

// text returns the decoded payload of a message.
func (x *cell) text(msg pulsar.Message) string {
	x.t.Helper()
	if x.kind.payload != nil {
		return x.kind.payload(x.t, msg)
	}
	return string(msg.Payload())
}

func (x *cell) receive() pulsar.Message {
	x.t.Helper()
	x.received++
	if x.opts.MessageChannel == nil {
		msg := testkit.Patiently(x.t, x.c)
		for slices.Contains(x.removed, msg.Topic()) { // the message had arrived before its topic was removed
			msg = testkit.Patiently(x.t, x.c)
		}
		if x.last == nil || msg.Topic() == x.topics[0] && msg.ID().EntryID() > x.last.ID().EntryID() {
			x.last = msg
		}
		return msg
	}
	select {
	case cm := <-x.opts.MessageChannel:
		require.Same(x.t, x.c, cm.Consumer)
		return cm.Message
	case <-time.After(testkit.Patience):
		require.FailNow(x.t, "no message")
		return nil
	}
}

// nothing checks that no other message comes.
func (x *cell) nothing() {
	x.t.Helper()
	if x.opts.MessageChannel == nil {
		testkit.ReceiveNothing(x.t, x.c, 300*time.Millisecond)
		return
	}
	select {
	case cm := <-x.opts.MessageChannel:
		x.t.Errorf("unexpected message %q", x.text(cm.Message))
	case <-time.After(300 * time.Millisecond):
	}
}
