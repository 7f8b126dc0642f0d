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

// prepare checks the settings together with the caller's options, completes them, and opens the publisher.
func (s *settings) prepare(opts pulsar.ConsumerOptions) error {
	s.opts = opts
	s.opts.Topics = slices.Clone(opts.Topics) // the caller's own slice may change
	s.nacksUndecryptable = upstream.NacksUndecryptable(opts)
	if err := s.checkAndAdopt(); err != nil {
		return err
	}
	switch {
	case opts.EnableBatchIndexAcknowledgment: // the caller says that the broker keeps them
		s.indexAcks = partition.KeptIndexAcks
	case !s.withoutIndexAcks && s.gainsByIndexAcks() && !upstream.HasTransactions(s.subscriber):
		s.opts.EnableBatchIndexAcknowledgment, s.indexAcks = true, partition.SentIndexAcks
	}
	partitions, err := s.partitions()
	if err != nil {
		return err
	}
	s.setResolution(partitions)
	return s.openPublisher()
}

// prepareWrapped does what prepare does, for a consumer whose options are not known.
func (s *settings) prepareWrapped(consumer pulsar.Consumer) error {
	s.isWrapped = true
	s.opts = pulsar.ConsumerOptions{Name: consumer.Name(), SubscriptionName: consumer.Subscription(),
		EnableZeroQueueConsumer: upstream.Chan(consumer) == nil,
		Type:                    pulsar.Shared} // the safe assumption: another consumer may get a message
	retryTopic, err := s.readTopics(consumer)
	if err != nil {
		return err
	}
	if err := s.checkAndAdopt(); err != nil {
		return err
	}
	s.deadLetterPolicy.RetryTopic = cmp.Or(s.deadLetterPolicy.RetryTopic, retryTopic)
	what := "nacked messages wait in memory; those that do not fit the memory limit come late, by up to 4/3 of the " +
		"consumer's NackRedeliveryDelay"
	if s.Source == FromBroker {
		what = "nacked messages come late, by up to 4/3 of the consumer's NackRedeliveryDelay"
	}
	s.logger.Info("redelivery: Wrap does not know the options of the consumer: "+what,
		"consumer", s.opts.Name, "subscription", s.opts.SubscriptionName)
	return s.openPublisher()
}

// readTopics asks a wrapped consumer for its topics, if an option needs them, and returns its retry topic.
func (s *settings) readTopics(consumer pulsar.Consumer) (retryTopic string, err error) {
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
		isRetry := strings.HasSuffix(topic, "-"+s.opts.SubscriptionName+pulsar.RetryTopicSuffix)
		if d := s.deadLetters; d != nil && d.RetryTopic != "" {
			isRetry = topic == topicname.In(topic, d.RetryTopic)
		}
		switch {
		case isRetry:
			s.opts.RetryEnable, retryTopic = true, topic
		case !slices.Contains(s.opts.Topics, topic):
			s.opts.Topics = append(s.opts.Topics, topic)
		}
	}
	return retryTopic, nil
}

// checkDefaultTopic refuses a wrapped consumer of several topics if an option names no topic: nothing shows which topic
// is the first.
func (s *settings) checkDefaultTopic(option, topic string) error {
	if topics := s.opts.Topics; s.isWrapped && topic == "" && len(topics) > 1 {
		return invalid("the wrapped consumer", "of "+strings.Join(topics, " and "),
			"Topic in "+option+" for several topics")
	}
	return nil
}

// isShared reports whether the subscription is known to be Shared or Key_Shared.
func (s *settings) isShared() bool { return !s.isWrapped && brokerDelays(s.opts.Type) }

// gainsByIndexAcks reports whether Subscribe may switch batch-index acknowledgement on. It returns false in three
// cases, where batch-index acknowledgement would do harm. If acknowledgements are not grouped, each is a command of its
// own: batches of 1,000 cost seven times as much CPU, and with AckWithResponse thirty times, since each message waits
// for the broker. On Exclusive and Failover a cumulative acknowledgement inside a batch would not leave the same
// messages unacknowledged as in plain pulsar-client-go: a test of pulsar-client-go then waits forever. A zero-queue
// consumer under load stops answering: its Close takes 30 s.
func (s *settings) gainsByIndexAcks() bool {
	opts := &s.opts
	grouped := !opts.AckWithResponse && (opts.AckGroupingOptions == nil || opts.AckGroupingOptions.MaxSize > 1)
	return s.isShared() && grouped && !opts.EnableZeroQueueConsumer
}

// shortensAckTime reports whether acknowledgements are sent sooner than by pulsar-client-go's default. The number of
// partitions says how soon.
func (s *settings) shortensAckTime() bool {
	return s.opts.AckGroupingOptions == nil && (s.opts.Type == pulsar.Failover || s.opts.Type == pulsar.KeyShared)
}

// partitions returns how many partitions the topics have; 0 if their number is unknown or not needed. The number is
// unknown for a pattern.
func (s *settings) partitions() (n int, err error) {
	if s.subscriber == nil || s.resolution != 0 && !s.shortensAckTime() ||
		s.opts.SubscriptionName == "" { // client.Subscribe returns the error
		return 0, nil
	}
	for _, topic := range topicsOf(s.opts) {
		partitions, err := s.subscriber.TopicPartitions(topic)
		if err != nil {
			return 0, subscribeError(err, s.opts, topic)
		}
		n += len(partitions)
	}
	return n, nil
}

// setResolution sets ackTime and, unless an option has set it, the resolution. Both grow with the number of partitions,
// since each partition costs a ticker. If all messages wait in memory, requests are rare, and the resolution is slow.
func (s *settings) setResolution(partitions int) {
	n := time.Duration(partitions)
	fast := min(maxResolution, max(fastResolution, n*fastResolution/20))
	if partitions > 0 && s.shortensAckTime() {
		s.ackTime = min(defaultAckTime, fast)
	}
	switch {
	case s.resolution != 0:
	case s.AckTimeout == 0 && s.MemoryLimit > 0 && (s.Source == FromMemory || s.Source == FromAuto && !s.isShared()):
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
func (s *settings) buffer() (channel, ahead int) {
	queue := s.queue()
	if s.isWrapped {
		return 0, smallBuffer // the application made the channel
	}
	if s.isShared() {
		ahead = min(smallBuffer/2, queue/16)
		return smallBuffer - ahead, ahead
	}
	channel = min(max(smallBuffer, queue/16), largeBuffer)
	return channel, min(channel, queue/16)
}

// queue returns the effective ReceiverQueueSize.
func (s *settings) queue() int {
	switch n := s.opts.ReceiverQueueSize; {
	case s.opts.EnableZeroQueueConsumer:
		return 0
	case n > 0:
		return n
	}
	return defaultQueue
}

func (s *settings) plan() upstream.Plan {
	channel, _ := s.buffer()
	return upstream.Plan{Resolution: s.resolution, Channel: channel, AckTime: s.ackTime,
		RetryTopic: s.ownRetryTopic(),
		Reconsumer: s.reconsumer != nil}
}

var kinds = map[pulsar.SubscriptionType]partition.Kind{pulsar.Exclusive: partition.Exclusive,
	pulsar.Failover: partition.Failover, pulsar.Shared: partition.Shared, pulsar.KeyShared: partition.KeyShared}

// groupOptions describes the subscription to the group.
func (s *settings) groupOptions() partition.Options {
	o := partition.Options{Kind: kinds[s.opts.Type], NonDurable: s.opts.SubscriptionMode == pulsar.NonDurable,
		Stays: s.Source != FromAuto, Drops: s.Source == FromBroker, MemoryLimit: s.MemoryLimit,
		MaxDeliveries: s.MaxDeliveries, AckedAfter: ackSlack + defaultAckTime, Reports: s.attempts != nil,
		RequestTime: upstream.Tick(s.resolution), IndexAcks: s.indexAcks}
	switch g := s.opts.AckGroupingOptions; {
	case g == nil:
	case g.MaxTime > 0:
		o.AckedAfter = ackSlack + min(g.MaxTime, longestAckTime)
	case g.MaxSize > 1: // acknowledgements are sent only when there are MaxSize of them
		o.AckedAfter = longestAckTime
	}
	if s.isWrapped {
		o.Stays = true                                      // messages that go back to the broker come late
		o.Deaf, o.RequestTime = true, nack.DefaultDelay*4/3 // assumes the default NackRedeliveryDelay
	}
	return o
}

// countTopics returns how many topics the Consumer reads: the Consumer ends when all of them are closed. For a pattern
// it returns manyTopics, since other topics may come.
func (s *settings) countTopics() int32 {
	topics := topicsOf(s.opts)
	if len(topics) == 0 || s.isWrapped { // a pattern, or unknown topics
		return manyTopics
	}
	distinct := map[string]bool{}
	if retryTopic := s.ownRetryTopic(); retryTopic != "" {
		distinct[retryTopic] = true
	}
	for _, topic := range topics {
		distinct[topicname.Full(topic)] = true
	}
	return int32(len(distinct))
}

const manyTopics = 1 << 30
