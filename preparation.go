package redelivery

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/partition"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/internal/upstream"
	"github.com/pulsar-redelivery/redelivery/nack"
)

// preparation describes a consumer before it is subscribed or wrapped.
type preparation struct {
	opts      pulsar.ConsumerOptions // the caller's, with EnableBatchIndexAcknowledgment; after Wrap, the known fields
	settings  *settings
	publisher *publisher
	// how long acknowledgements may wait on Failover and Key_Shared, where a new owner handles a message again if its
	// acknowledgement was not sent; 0 for upstream's default
	ackTime time.Duration
}

// prepare completes settings with the caller's options, and opens the publisher.
func prepare(opts pulsar.ConsumerOptions, s *settings) (*preparation, error) {
	if err := s.complete(opts); err != nil {
		return nil, err
	}
	p := &preparation{opts: opts, settings: s}
	switch {
	case opts.EnableBatchIndexAcknowledgment: // the caller says that the broker keeps them
		s.indexAcks = partition.KeptIndexAcks
	case !s.withoutIndexAcks && gainsByIndexAcks(opts) && !upstream.HasTransactions(s.client):
		p.opts.EnableBatchIndexAcknowledgment, s.indexAcks = true, partition.SentIndexAcks
	}
	s.nacksUndecryptable = upstream.NacksUndecryptable(opts)
	s.isShared = delays(opts.Type)
	return p, p.open()
}

// prepareWrapped completes settings for a consumer whose options are not known, and opens the publisher.
func prepareWrapped(consumer pulsar.Consumer, s *settings) (*preparation, error) {
	s.isWrapped = true
	p := &preparation{settings: s, opts: pulsar.ConsumerOptions{Name: consumer.Name(),
		SubscriptionName: consumer.Subscription(), EnableZeroQueueConsumer: upstream.Chan(consumer) == nil,
		Type: pulsar.Shared}} // the safe assumption: another consumer may get a message
	retryTopic, err := p.readTopics(consumer)
	if err != nil {
		return nil, err
	}
	if err := s.complete(p.opts); err != nil {
		return nil, err
	}
	s.limits.RetryTopic = cmp.Or(s.limits.RetryTopic, retryTopic)
	what := "nacked messages wait in memory; those that do not fit the memory limit come late, by up to 4/3 of the " +
		"consumer's NackRedeliveryDelay"
	if s.source == FromBroker {
		what = "nacked messages come late, by up to 4/3 of the consumer's NackRedeliveryDelay"
	}
	s.logger.Info("redelivery: Wrap does not know the options of the consumer: "+what,
		"consumer", p.opts.Name, "subscription", p.opts.SubscriptionName)
	return p, p.openPublisher()
}

// readTopics asks a wrapped consumer for its topics, if an option needs them, and returns its retry topic.
func (p *preparation) readTopics(consumer pulsar.Consumer) (retryTopic string, err error) {
	s := p.settings
	isNamed := s.attempts == nil || s.attempts.Topic != "" && !topicname.IsShort(s.attempts.Topic)
	if s.client == nil || s.reconsumer != nil && isNamed {
		return "", nil
	}
	ids, err := consumer.GetLastMessageIDs() // no other public method shows its topics
	if err != nil {
		return "", fmt.Errorf("redelivery: asking for the topics of the wrapped consumer: %w", err)
	}
	for _, id := range ids {
		topic := topicname.Base(topicname.Full(id.Topic()))
		isRetry := strings.HasSuffix(topic, "-"+p.opts.SubscriptionName+pulsar.RetryTopicSuffix)
		if d := s.deadLetters; d != nil && d.RetryTopic != "" {
			isRetry = topic == topicname.In(topic, d.RetryTopic)
		}
		switch {
		case isRetry:
			p.opts.RetryEnable, retryTopic = true, topic
		case !slices.Contains(p.opts.Topics, topic):
			p.opts.Topics = append(p.opts.Topics, topic)
		}
	}
	return retryTopic, nil
}

// checkFirst refuses a wrapped consumer of several topics if an option names no topic: nothing shows which topic is the
// first.
func (p *preparation) checkFirst(option, topic string) error {
	if topics := p.opts.Topics; p.settings.isWrapped && topic == "" && len(topics) > 1 {
		return invalid("the wrapped consumer", "of "+strings.Join(topics, " and "),
			"Topic in "+option+" for several topics")
	}
	return nil
}

// gainsByIndexAcks reports whether Subscribe may switch batch-index acknowledgement on: it would do harm in three
// cases. If acknowledgements are not grouped, each is a command of its own: batches of 1,000 cost seven times as much
// CPU, and with AckWithResponse thirty times, since each message waits for the broker. On Exclusive and Failover a
// cumulative acknowledgement inside a batch would not leave the same messages unacknowledged as in plain
// pulsar-client-go: a test of pulsar-client-go then waits forever. A zero-queue consumer under load stops answering:
// its Close takes 30 s.
func gainsByIndexAcks(opts pulsar.ConsumerOptions) bool {
	grouped := !opts.AckWithResponse && (opts.AckGroupingOptions == nil || opts.AckGroupingOptions.MaxSize > 1)
	return delays(opts.Type) && grouped && !opts.EnableZeroQueueConsumer
}

// open sets the default resolution and ackTime from the number of partitions that the client reports, and opens the
// publisher.
func (p *preparation) open() error {
	partitions := 0 // unknown
	if client := p.settings.client; client != nil && (p.settings.resolution == 0 || p.shortensAckTime()) {
		n, err := p.partitions(client)
		if err != nil {
			return err
		}
		partitions = n
	}
	p.setResolution(partitions)
	return p.openPublisher()
}

// shortensAckTime reports whether acknowledgements are sent sooner than by pulsar-client-go's default. The number of
// partitions says how soon.
func (p *preparation) shortensAckTime() bool {
	return p.opts.AckGroupingOptions == nil && (p.opts.Type == pulsar.Failover || p.opts.Type == pulsar.KeyShared)
}

// partitions returns how many partitions the topics have. Those of a pattern are not known.
func (p *preparation) partitions(client pulsar.Client) (n int, err error) {
	if p.opts.SubscriptionName == "" { // client.Subscribe returns the error
		return 0, nil
	}
	for _, topic := range topicsOf(p.opts) {
		partitions, err := client.TopicPartitions(topic)
		if err != nil {
			return 0, subscribeError(err, p.opts, topic)
		}
		n += len(partitions)
	}
	return n, nil
}

// setResolution sets ackTime and, unless an option has set it, the resolution. Both grow with the number of partitions,
// since each partition costs a ticker. If all messages wait in memory, requests are rare, and the resolution is slow.
func (p *preparation) setResolution(partitions int) {
	s, n := p.settings, time.Duration(partitions)
	fast := min(maxResolution, max(fastResolution, n*fastResolution/20))
	if partitions > 0 && p.shortensAckTime() {
		p.ackTime = min(defaultAckTime, fast)
	}
	switch {
	case s.resolution != 0:
	case s.timeout == 0 && s.memoryLimit > 0 && (s.source == FromMemory || s.source == FromAuto && !s.isShared):
		s.resolution = min(maxResolution, max(slowResolution, n*slowResolution/2))
	default:
		s.resolution = fast
	}
}

const (
	minResolution = time.Millisecond
	maxResolution = time.Minute

	fastResolution = 10 * time.Millisecond  // where messages come back through the broker, up to 20 partitions
	slowResolution = 100 * time.Millisecond // where requests are the exception, up to two partitions

	defaultQueue   = 1000                   // upstream's ReceiverQueueSize
	defaultAckTime = 100 * time.Millisecond // upstream's AckGroupingOptions.MaxTime
	ackSlack       = 2 * time.Second        // added to AckedAfter: the computer may be busy, or the connection dead
	longestAckTime = 24 * time.Hour
)

// When a connection is lost, another consumer may also handle the messages that are in the inner consumer's private
// channel or were read from it ahead. So on Shared and Key_Shared there are at most ten such messages, as in
// pulsar-client-go's own channel. Where no other consumer gets the messages, more room saves CPU: a sixteenth of the
// receiver queue.
const (
	smallBuffer = 10
	largeBuffer = 64
)

// buffer returns the capacity of the private channel, and how many messages are read from it together.
func (p *preparation) buffer() (channel, ahead int) {
	queue := p.queue()
	if p.settings.isWrapped {
		return 0, smallBuffer // the application made the channel
	}
	if p.settings.isShared {
		ahead = min(smallBuffer/2, queue/16)
		return smallBuffer - ahead, ahead
	}
	channel = min(max(smallBuffer, queue/16), largeBuffer)
	return channel, min(channel, queue/16)
}

// queue returns the effective ReceiverQueueSize.
func (p *preparation) queue() int {
	if n := p.opts.ReceiverQueueSize; n > 0 {
		return n
	}
	return defaultQueue
}

// plan says how to subscribe.
func (p *preparation) plan() upstream.Plan {
	channel, _ := p.buffer()
	return upstream.Plan{Resolution: p.settings.resolution, Channel: channel, AckTime: p.ackTime,
		RetryTopic: p.publisher.subscribed(),
		Reconsumer: p.settings.reconsumer != nil}
}

// groupOptions describes the subscription to the group.
func (p *preparation) groupOptions() partition.Options {
	s := p.settings
	o := partition.Options{Stays: s.source != FromAuto, Drops: s.source == FromBroker, MemoryLimit: s.memoryLimit,
		MaxDeliveries: p.publisher.maxDeliveries, AckedAfter: ackSlack + defaultAckTime, Reports: s.attempts != nil,
		RequestTime: upstream.Tick(s.resolution), IndexAcks: s.indexAcks}
	switch p.opts.Type {
	case pulsar.Exclusive:
		o.Kind = partition.Exclusive
	case pulsar.Failover:
		o.Kind = partition.Failover
	case pulsar.Shared:
		o.Kind = partition.Shared
	case pulsar.KeyShared:
		o.Kind = partition.KeyShared
	}
	o.NonDurable = p.opts.SubscriptionMode == pulsar.NonDurable
	switch g := p.opts.AckGroupingOptions; {
	case g == nil:
	case g.MaxTime > 0:
		o.AckedAfter = ackSlack + min(g.MaxTime, longestAckTime)
	case g.MaxSize > 1: // acknowledgements are sent only when there are MaxSize of them
		o.AckedAfter = longestAckTime
	}
	if p.opts.EnableZeroQueueConsumer {
		// otherwise the application could have two messages at the same time: one from memory and one that the inner
		// Receive asked for
		o.MemoryLimit = 0
	}
	if s.isWrapped {
		o.Stays = true                                      // messages that go back to the broker come late
		o.Deaf, o.RequestTime = true, nack.DefaultDelay*4/3 // assumes the default NackRedeliveryDelay
	}
	return o
}

// children returns how many topics the Consumer reads: the Consumer ends when all of them are closed. For a pattern it
// returns manyTopics, since other topics may come.
func (p *preparation) children() int {
	topics := topicsOf(p.opts)
	if len(topics) == 0 || p.settings.isWrapped { // a pattern, or subscribe adds them
		return manyTopics
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

const manyTopics = 1 << 30
