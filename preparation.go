package redelivery

import (
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// preparation is what is known about a consumer that is subscribed for a Consumer.
type preparation struct {
	opts     pulsar.ConsumerOptions // as the caller wrote them, but for EnableBatchIndexAcknowledgment
	settings *settings
	hooks    *hooks

	indexAcks ledger.IndexAcks

	// Set by open:
	unpartitioned bool // as far as is known, so that a lost connection is that of all messages
	publisher     *publisher
	ackTime       time.Duration // of acknowledgements where owners change: what is not sent by then is handled twice; 0 for upstream's

	again func() (pulsar.Consumer, error) // subscribes once more; nil if that cannot be
	main  func() (pulsar.Consumer, error) // subscribes to the main topic without the retry topic, for a moment; nil if that cannot be
}

// prepare begins to prepare a consumer, and completes its settings.
func prepare(opts pulsar.ConsumerOptions, s *settings) (*preparation, error) {
	if err := s.complete(&opts); err != nil {
		return nil, err
	}
	p := &preparation{opts: opts, settings: s}
	switch {
	case opts.EnableBatchIndexAcknowledgment: // the caller says that the broker keeps them
		p.indexAcks = ledger.KeptIndexAcks
	case !s.withoutIndexAcks && gainsByIndexAcks(opts) && !hasTransactions(s.client):
		p.opts.EnableBatchIndexAcknowledgment, p.indexAcks = true, ledger.SentIndexAcks
		s.addsIndexAcks = true
	}
	d := opts.Decryption
	p.hooks = &hooks{of: opts.Interceptors, pattern: opts.TopicsPattern != "",
		redeliversAll:      opts.Type == pulsar.Exclusive || opts.Type == pulsar.Failover,
		nacksUndecryptable: d == nil || d.ConsumerCryptoFailureAction == crypto.ConsumerCryptoFailureActionFail}
	return p, nil
}

// gainsByIndexAcks reports whether batch-index acknowledgement does no harm. Without a group of acknowledgements each has a command of its own:
// batches of 1,000 cost seven times as much CPU, and with AckWithResponse thirty times, since each message waits for the broker. On
// Exclusive and Failover a cumulative acknowledgement inside of a batch leaves another rest of the batch than with plain
// pulsar-client-go, whose own test then waits for ever. A zero-queue consumer under load stops answering: its Close takes 30 s.
func gainsByIndexAcks(opts pulsar.ConsumerOptions) bool {
	shared := opts.Type == pulsar.Shared || opts.Type == pulsar.KeyShared
	grouped := !opts.AckWithResponse && (opts.AckGroupingOptions == nil || opts.AckGroupingOptions.MaxSize > 1)
	return shared && grouped && !opts.EnableZeroQueueConsumer
}

// hasTransactions reports whether a client of pulsar-client-go was made with EnableTransaction, which its interface does not show. With batch-index
// acknowledgement the broker refuses to acknowledge the last message of a batch in a transaction that has others of the batch
// (TransactionConflict), and then the transaction cannot end: v0.21.0 names no indexes in that last acknowledgement.
func hasTransactions(client pulsar.Client) bool {
	if client == nil || !isUpstreams(client) {
		return false
	}
	coordinator := reflect.ValueOf(client).Elem().FieldByName("tcClient")
	return coordinator.IsValid() && coordinator.Kind() == reflect.Pointer && !coordinator.IsNil()
}

// tick returns the period of requests. What comes with one tick and is nacked at once is due a round delay later: if the tick
// divided that, it would miss its next tick by just the broker's time, every time.
func tick(resolution time.Duration) time.Duration { return resolution * 15 / 16 }

// What is between upstream and the Ledger when a connection is lost comes twice, unless that is certain to have been the messages' own: then
// the Ledger drops it. Upstream's own channel has room for ten. With 64 a message costs a tenth less CPU.
const (
	smallBuffer = 10
	largeBuffer = 64
)

// buffer is the capacity of the channel by which upstream hands messages over, and how many are taken from it at once: one sixteenth of what
// is prefetched anyway, within these bounds. Both together are a small buffer.
func (p *preparation) buffer() (channel, ahead int) {
	sixteenth := p.queue() / 16
	if !p.unpartitioned || p.children() != 1 {
		ahead = min(smallBuffer/2, sixteenth)
		return smallBuffer - ahead, ahead
	}
	channel = min(max(smallBuffer, sixteenth), largeBuffer)
	return channel, min(channel, sixteenth)
}

// queue is how much upstream prefetches of each partition.
func (p *preparation) queue() int {
	if n := p.opts.ReceiverQueueSize; n > 0 {
		return n
	}
	return defaultQueue
}

// checkPersistent refuses a topic of which the broker cannot send again what was not published elsewhere.
func checkPersistent(topic string) error {
	if !topicname.IsPersistent(topic) {
		return invalid("the topic", topic, "a persistent one with dead letters and retries")
	}
	return nil
}

// checkName refuses a name that no topic has, "" apart: else only what is published to it would fail.
func checkName(what, topic string) error {
	if want := topicname.Want(topic); topic != "" && want != "" {
		return invalid(what, topic, want)
	}
	return nil
}

// checkNumber returns an error for a name, made of those of a topic and a subscription, that pulsar-client-go refuses.
func checkNumber(what, topic string) error {
	if want := topicname.WantNumber(topic); want != "" {
		return invalid(what, topic, want)
	}
	return nil
}

// requestsAreDueAtOnce makes every due time of the consumer's own nack tracker fall into 1970, so that each of its ticks
// sends all requests made since the last.
const requestsAreDueAtOnce = int64(62)

// consumerOptions are what the inner consumer is subscribed with. Its nacks only carry our requests: they go out at the
// next tick, and its ticks come once per resolution.
func (p *preparation) consumerOptions() pulsar.ConsumerOptions {
	opts, bits, retryTopic := p.opts, requestsAreDueAtOnce, p.publisher.subscribed()
	channel, _ := p.buffer()
	opts.NackRedeliveryDelay = 3 * tick(p.settings.resolution) // of which upstream makes a tick of a third
	opts.NackPrecisionBit = &bits
	opts.NackBackoffPolicy = nil
	opts.EnableDefaultNackBackoffPolicy = false
	opts.MessageChannel = make(chan pulsar.ConsumerMessage, channel)
	opts.Interceptors = pulsar.ConsumerInterceptors{p.hooks}
	opts.BackOffPolicyFunc = p.hooks.backoffPolicy(opts.BackOffPolicyFunc)
	if opts.Type == pulsar.Failover {
		opts.EventListener = listener{opts.EventListener, p.hooks}
	}
	if p.acksSoon() && p.ackTime > 0 {
		opts.AckGroupingOptions = &pulsar.AckGroupingOptions{MaxSize: defaultAckGroup, MaxTime: p.ackTime}
	}
	p.hooks.tick, p.hooks.children = tick(p.settings.resolution), p.children()
	if opts.Topics != nil {
		opts.Topics = append([]string(nil), opts.Topics...) // upstream normalises them in place
	}
	if retryTopic != "" && opts.TopicsPattern == "" {
		opts.Topic, opts.Topics = "", append(slices.Clone(topicsOf(opts)), retryTopic)
	}
	switch {
	case retryTopic != "" && opts.TopicsPattern != "": // upstream only subscribes to the retry topic
		opts.RetryEnable = true
		opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: math.MaxUint32, RetryLetterTopic: retryTopic, DeadLetterTopic: retryTopic}
	case p.settings.reconsumer != nil && opts.RetryEnable: // upstream only subscribes to the retry topic
		policy := pulsar.DLQPolicy{}
		if opts.DLQ != nil {
			policy = *opts.DLQ // upstream fills it in
		}
		policy.MaxDeliveries = math.MaxUint32
		opts.DLQ = &policy
	default: // upstream has no part in retries and dead letters: its routers can hang, panic and lose
		opts.DLQ = nil
		opts.RetryEnable = opts.RetryEnable && opts.EnableZeroQueueConsumer // for which upstream has an error
	}
	var decryption pulsar.MessageDecryptionInfo // which upstream fills in
	if opts.Decryption != nil {
		decryption = *opts.Decryption
		opts.Decryption = &decryption
	}
	if p.hooks.nacksUndecryptable {
		// Left to upstream it would be nacked by upstream, and come back every tick.
		decryption.ConsumerCryptoFailureAction = crypto.ConsumerCryptoFailureActionConsume
		opts.Decryption = &decryption
	}
	return opts
}

// children returns how many consumers of a topic have to give up until the consumer is of no use; 0 for a pattern, of which other topics
// may come.
func (p *preparation) children() int {
	topics := topicsOf(p.opts)
	if len(topics) == 0 {
		return 0
	}
	distinct := map[string]bool{}
	if retryTopic := p.publisher.subscribed(); retryTopic != "" {
		distinct[retryTopic] = true
	}
	for _, topic := range topics {
		distinct[topicname.Full(topic)] = true
	}
	return len(distinct)
}

// open chooses what takes a client to know: the default resolution, whether one topic has partitions, and the topics of retries and dead
// letters.
func (p *preparation) open() error {
	n := 0 // it is not known
	if client := p.settings.client; client != nil && (p.settings.resolution == 0 || len(topicsOf(p.opts)) == 1 || p.acksSoon()) {
		partitions, err := p.partitions(client)
		if err != nil {
			return err
		}
		n, p.unpartitioned = len(partitions), len(partitions) == 1 && !ledger.IsPartition(partitions[0])
	}
	p.setResolution(n)
	return p.publishRetries()
}

// acksSoon reports whether acknowledgements are sent sooner than upstream's, which takes the number of partitions to know.
func (p *preparation) acksSoon() bool {
	return p.opts.AckGroupingOptions == nil && (p.opts.Type == pulsar.Failover || p.opts.Type == pulsar.KeyShared)
}

// partitions returns the partitions of the topics. Those of a pattern are not known.
func (p *preparation) partitions(client pulsar.Client) (all []string, err error) {
	if p.opts.SubscriptionName != "" { // else client.Subscribe has an error for it
		for _, topic := range topicsOf(p.opts) {
			partitions, err := client.TopicPartitions(topic)
			if err != nil {
				return nil, refused(err, p.opts, topic)
			}
			all = append(all, partitions...)
		}
	}
	return all, nil
}

// setResolution sets the time of acknowledgements and the default resolution, unless one is set: each partition costs a ticker, and requests are rare where
// all that comes back by policy waits in memory.
func (p *preparation) setResolution(partitions int) {
	s, n := p.settings, time.Duration(partitions)
	fast := min(maxResolution, max(fastResolution, n*fastResolution/20))
	if partitions > 0 {
		p.ackTime = min(defaultAckTime, fast)
	}
	switch {
	case s.resolution != 0:
	case s.timeout == 0 && s.memoryLimit > 0 && (s.source == FromMemory || s.source == FromAuto && !delays(p.opts.Type)):
		s.resolution = min(maxResolution, max(slowResolution, n*slowResolution/2))
	default:
		s.resolution = fast
	}
}

// Resolutions.
const (
	minResolution = time.Millisecond
	maxResolution = time.Minute

	fastResolution = 10 * time.Millisecond  // where messages come back through the broker, up to 20 partitions
	slowResolution = 100 * time.Millisecond // where requests are the exception, up to two partitions
)

// chanOf returns a consumer's channel, or nil for a zero-queue consumer, whose Chan panics.
func chanOf(consumer pulsar.Consumer) (ch <-chan pulsar.ConsumerMessage) {
	defer func() { _ = recover() }()
	return consumer.Chan()
}
