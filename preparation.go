package redelivery

import (
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/doctor"
	"github.com/pulsar-redelivery/redelivery/internal/partition"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/internal/upstream"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// preparation describes a consumer before it is subscribed.
type preparation struct {
	opts      pulsar.ConsumerOptions // as the caller wrote them, except EnableBatchIndexAcknowledgment
	settings  *settings
	publisher *publisher
	// how long acknowledgements may wait on Failover and Key_Shared, where a new owner handles a message again if its
	// acknowledgement was not sent; 0 for upstream's default
	ackTime time.Duration
}

// prepare completes settings with the caller's options, and opens the publisher.
func prepare(opts pulsar.ConsumerOptions, s *settings) (*preparation, error) {
	if err := s.complete(&opts); err != nil {
		return nil, err
	}
	p := &preparation{opts: opts, settings: s}
	s.keepsIndexAcks = opts.EnableBatchIndexAcknowledgment // the caller says that the broker keeps them
	if !s.keepsIndexAcks && !s.withoutIndexAcks && gainsByIndexAcks(opts) && !upstream.HasTransactions(s.client) {
		p.opts.EnableBatchIndexAcknowledgment, s.addsIndexAcks = true, true
	}
	s.nacksUndecryptable = upstream.NacksUndecryptable(opts)
	s.isShared = delays(opts.Type)
	return p, p.open()
}

// gainsByIndexAcks reports whether batch-index acknowledgement does no harm. If acknowledgements are not grouped, each
// is a command of its own: batches of 1,000 cost seven times as much CPU, and with AckWithResponse thirty times, since
// each message waits for the broker. On Exclusive and Failover a cumulative acknowledgement inside a batch would not
// leave the same messages unacknowledged as in plain pulsar-client-go: a test of pulsar-client-go then waits forever. A
// zero-queue consumer under load stops answering: its Close takes 30 s.
func gainsByIndexAcks(opts pulsar.ConsumerOptions) bool {
	grouped := !opts.AckWithResponse && (opts.AckGroupingOptions == nil || opts.AckGroupingOptions.MaxSize > 1)
	return delays(opts.Type) && grouped && !opts.EnableZeroQueueConsumer
}

// open sets the default resolution and ackTime from the number of partitions that the client reports, and opens the
// publisher.
func (p *preparation) open() error {
	partitions := 0 // unknown
	if client := p.settings.client; client != nil && (p.settings.resolution == 0 || p.acksSoon()) {
		n, err := p.partitions(client)
		if err != nil {
			return err
		}
		partitions = n
	}
	p.setResolution(partitions)
	return p.publishRetries()
}

// acksSoon reports whether acknowledgements are sent sooner than by pulsar-client-go's default. The number of
// partitions says how soon.
func (p *preparation) acksSoon() bool {
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
			return 0, refused(err, p.opts, topic)
		}
		n += len(partitions)
	}
	return n, nil
}

// setResolution sets ackTime and, unless an option has set it, the resolution. Both grow with the number of partitions,
// since each partition costs a ticker. Where all messages wait in memory, requests are rare: there the resolution is
// slow.
func (p *preparation) setResolution(partitions int) {
	s, n := p.settings, time.Duration(partitions)
	fast := min(maxResolution, max(fastResolution, n*fastResolution/20))
	if partitions > 0 && p.acksSoon() {
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
	ackSlack       = 2 * time.Second        // added to AckedAfter: the machine may be busy, or the connection dead
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
	queue := defaultQueue
	if n := p.opts.ReceiverQueueSize; n > 0 {
		queue = n
	}
	if p.settings.isShared {
		ahead = min(smallBuffer/2, queue/16)
		return smallBuffer - ahead, ahead
	}
	channel = min(max(smallBuffer, queue/16), largeBuffer)
	return channel, min(channel, queue/16)
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
	o := p.settings.groupOptions(p.publisher)
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
	switch {
	case p.settings.keepsIndexAcks:
		o.IndexAcks = partition.KeptIndexAcks
	case p.settings.addsIndexAcks:
		o.IndexAcks = partition.SentIndexAcks
	}
	o.RequestTime = upstream.Tick(p.settings.resolution)
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
	return o
}

// groupOptions returns the options that are the same for each subscription. After Wrap the type is unknown. Shared is
// the safe assumption: the group expects that another consumer may get a message.
func (s *settings) groupOptions(p *publisher) partition.Options {
	return partition.Options{Kind: partition.Shared, Stays: s.source != FromAuto, Drops: s.source == FromBroker,
		MemoryLimit: s.memoryLimit, MaxDeliveries: p.maxDeliveries,
		AckedAfter: ackSlack + defaultAckTime, Reports: s.attempts != nil}
}

// children returns how many topics the Consumer reads: the Consumer ends when all of them are closed. For a pattern it
// returns manyTopics, since other topics may come.
func (p *preparation) children() int {
	topics := topicsOf(p.opts)
	if len(topics) == 0 { // a pattern, or subscribe adds them
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

// isVanished reports whether a topic of a pattern was deleted.
func (c *Consumer) isVanished(err error) bool {
	return c.options.TopicsPattern != "" && err != nil && strings.Contains(err.Error(), "TopicNotFound")
}

// warn logs the doctor's findings about the options.
func (p *preparation) warn() {
	if p.settings.unchecked {
		return
	}
	p.warnOfOrder()
	p.warnOfAutoScaling()
	told := map[string]bool{}
	for _, topic := range append(topicsOf(p.opts), p.opts.TopicsPattern) {
		if topic == "" {
			continue
		}
		for _, f := range doctor.ExamineOptions(p.setup(topic)) {
			if f.Status < doctor.Warning || told[f.Found] {
				continue
			}
			told[f.Found] = true
			p.settings.warn(f.Found, "remedy", f.Remedy, "see", f.Link, "type", typeName(p.opts.Type),
				"subscription", p.opts.SubscriptionName)
		}
	}
}

// warnOfAutoScaling warns that upstream reserves more of the client's memory limit than it releases: for each message
// of a batch upstream also reserves the bytes of all earlier messages of the batch.
func (p *preparation) warnOfAutoScaling() {
	if p.opts.EnableAutoScaledReceiverQueueSize && p.publisher.Publisher != nil {
		p.settings.warn("with EnableAutoScaledReceiverQueueSize, batches use up the client's memory limit forever, "+
			"and then no retry or dead letter can be published: leave it out",
			"type", typeName(p.opts.Type), "subscription", p.opts.SubscriptionName)
	}
}

// setup describes a consumer of a topic to the doctor.
func (p *preparation) setup(topic string) doctor.Setup {
	s, opts := p.settings, p.opts
	limits, ok := s.limits(opts)
	d := doctor.Setup{
		Topic:        topic,
		Subscription: opts.SubscriptionName,
		Type:         typeName(opts.Type),
		RetryTopic:   p.publisher.retryTopic,
		Policy: doctor.Policy{Nack: s.nackBackoff, NackRetryTopic: s.retryFrom, AckTimeout: s.timeout,
			AckTimeoutBackoff: s.timeoutBackoff,
			Reconsume:         s.reconsumeBackoff, MaxDeliveries: limits.MaxDeliveries,
			MaxReconsumes: limits.MaxReconsumes,
			MemoryLimit:   s.memoryLimit},
		InitialSubscriptionName: limits.InitialSubscriptionName,
		Consumer: doctor.Consumer{ReceiverQueueSize: opts.ReceiverQueueSize,
			BatchIndexAcknowledgment: &opts.EnableBatchIndexAcknowledgment},
	}
	for _, limit := range []*uint32{&d.Policy.MaxDeliveries, &d.Policy.MaxReconsumes} {
		if *limit == reconsume.Unlimited {
			*limit = 0
		}
	}
	// RetryEnable alone makes dead letters too, as in upstream, but deserves no warning
	asked := opts.DLQ != nil || s.deadLetters != nil && !s.deadLetters.Discard
	if own := p.publisher.own; ok && own != nil && asked && s.reconsumer == nil {
		d.DeadLetterTopic = own.DeadLetterTopic()
	}
	return d
}
