package upstream

import (
	"math"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
)

// Plan says how to subscribe a consumer.
type Plan struct {
	Resolution time.Duration // how often requests are sent
	Channel    int           // capacity of the private channel
	AckTime    time.Duration // how often acknowledgements are sent; 0 leaves that to the options
	RetryTopic string        // subscribed to in addition to the topics; "" for none
	Reconsumer bool          // the application's Reconsumer publishes to the retry topic that RetryEnable subscribes to
}

// Tick returns the period of requests for a resolution. A message that a request brings, and that is nacked at once, is
// due a whole delay after the tick of the request. If the tick divided that delay, the message would be due just after
// a tick, and wait for the next one, every time.
func Tick(resolution time.Duration) time.Duration { return resolution * 15 / 16 }

// dueAtOnce is a NackPrecisionBit that rounds every due time of pulsar-client-go's own nack tracker down to 1970, so that
// each tick sends all requests.
const dueAtOnce = int64(62)

// ackGroup is pulsar-client-go's default of AckGroupingOptions.MaxSize.
const ackGroup = 1000

// Options returns the options to subscribe with. With these options h gets all callbacks, and upstream redelivers only
// on request: a NackID is a request, and is sent with the next tick. Options changes nothing that opts points to.
func (h *Hooks) Options(opts pulsar.ConsumerOptions, p Plan) pulsar.ConsumerOptions {
	bits := dueAtOnce
	h.tick, h.interceptors = Tick(p.Resolution), opts.Interceptors
	opts.NackRedeliveryDelay = 3 * h.tick // pulsar-client-go ticks three times in a delay
	opts.NackPrecisionBit = &bits
	opts.NackBackoffPolicy = nil
	opts.EnableDefaultNackBackoffPolicy = false
	opts.MessageChannel = make(chan pulsar.ConsumerMessage, p.Channel)
	opts.Interceptors = pulsar.ConsumerInterceptors{h}
	opts.BackOffPolicyFunc = h.backoffPolicy(opts.BackOffPolicyFunc)
	if opts.Type == pulsar.Failover {
		h.listener, opts.EventListener = opts.EventListener, h
	}
	if p.AckTime > 0 {
		opts.AckGroupingOptions = &pulsar.AckGroupingOptions{MaxSize: ackGroup, MaxTime: p.AckTime}
	}
	opts.Topics = slices.Clone(opts.Topics) // pulsar-client-go normalizes them in place
	p.retries(&opts)
	decrypt(&opts)
	return opts
}

// retries makes pulsar-client-go subscribe to the retry topic without publishing to it: its code for publishing retries
// and dead letters can hang, panic and lose messages.
func (p *Plan) retries(opts *pulsar.ConsumerOptions) {
	switch {
	case p.RetryTopic != "" && opts.TopicsPattern != "":
		opts.RetryEnable = true
		opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: math.MaxUint32, RetryLetterTopic: p.RetryTopic,
			DeadLetterTopic: p.RetryTopic}
		return
	case p.RetryTopic != "" && opts.Topic != "":
		opts.Topic, opts.Topics = "", []string{opts.Topic, p.RetryTopic}
	case p.RetryTopic != "":
		opts.Topics = append(opts.Topics, p.RetryTopic)
	case p.Reconsumer && opts.RetryEnable:
		policy := pulsar.DLQPolicy{}
		if opts.DLQ != nil {
			policy = *opts.DLQ // pulsar-client-go fills it in
		}
		policy.MaxDeliveries = math.MaxUint32
		opts.DLQ = &policy
		return
	}
	opts.DLQ = nil
	// RetryEnable stays set for a zero-queue consumer: then pulsar-client-go refuses the options, as it should
	opts.RetryEnable = opts.RetryEnable && opts.EnableZeroQueueConsumer
}

// NacksUndecryptable reports whether messages that cannot be decrypted are nacked, as they are by default.
func NacksUndecryptable(opts pulsar.ConsumerOptions) bool {
	d := opts.Decryption
	return d == nil || d.ConsumerCryptoFailureAction == crypto.ConsumerCryptoFailureActionFail
}

// decrypt makes pulsar-client-go deliver messages that it cannot decrypt. By itself, pulsar-client-go would nack these,
// and request them with every tick.
func decrypt(opts *pulsar.ConsumerOptions) {
	var d pulsar.MessageDecryptionInfo // pulsar-client-go fills it in
	nacks := NacksUndecryptable(*opts)
	if opts.Decryption != nil {
		d = *opts.Decryption
		opts.Decryption = &d
	}
	if nacks {
		d.ConsumerCryptoFailureAction = crypto.ConsumerCryptoFailureActionConsume
		opts.Decryption = &d
	}
}
