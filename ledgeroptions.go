package redelivery

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
	"github.com/pulsar-redelivery/redelivery/nack"
)

// ledgerOptions returns what a Ledger is to know of the consumer; p is nil if it was not prepared.
func (c *Consumer) ledgerOptions(p *preparation, buffer int, hasQueue bool) ledger.Options {
	s := c.settings
	o := ledger.Options{
		HoldLimit:     s.holdLimit,
		Queue:         defaultQueue + buffer,
		AckGroup:      defaultAckGroup,
		SendDelay:     sendSlack + defaultAckTime,
		Ahead:         s.innerDelay,
		MaxDeliveries: c.publisher.maxDeliveries,
		Observed:      c.observed.any,
		Timed:         c.observed.timed,
		Calls: ledger.Calls{
			Ask:      c.ask,
			Wake:     func() { c.intake.Wake() },
			GiveUp:   func(d ledger.Delivery) { c.giveUp(d, ledger.Leaving, nil) },
			TimedOut: c.timedOut(),
		},
	}
	if p != nil {
		p.ledgerOptions(&o)
	} else if o.AskDelay = s.innerDelay * 4 / 3; s.innerDelay == 0 {
		o.AskDelay = nack.DefaultDelay * 4 / 3
	}
	if s.source == FromMemory {
		o.Keeps = ledger.Keeps{Singles: true, Batches: true}
	}
	if s.source == FromBroker {
		o.Keeps = ledger.Keeps{}
	}
	if !hasQueue {
		o.HoldLimit, o.Queue = 0, 1 // whoever waits for a zero-queue consumer's next message cannot wait for a kept one too
	}
	if o.HoldLimit == 0 {
		o.Ahead = 0
	}
	return o
}

const (
	defaultQueue    = 1000 // upstream's ReceiverQueueSize
	defaultAckGroup = 1000 // and its AckGroupingOptions
	defaultAckTime  = 100 * time.Millisecond
	sendSlack       = 2 * time.Second // for a busy machine, and for a link that is dead already
)

// ledgerOptions adds what is known of the inner consumer.
func (p *preparation) ledgerOptions(o *ledger.Options) {
	kind := p.opts.Type
	o.Rewinds = kind == pulsar.Exclusive || kind == pulsar.Failover
	o.IndexAcks = p.opts.EnableBatchIndexAcknowledgment
	o.Keeps = ledger.Keeps{Singles: kind != pulsar.Shared, Batches: true, ButLast: o.IndexAcks && kind == pulsar.Shared}
	if n := p.opts.ReceiverQueueSize; n > 0 {
		o.Queue = n
	}
	grouped := defaultAckTime
	if g := p.opts.AckGroupingOptions; g != nil {
		grouped, o.AckGroup = max(0, g.MaxTime), int(g.MaxSize)
	}
	o.SendDelay, o.AskDelay, o.Signals = sendSlack+grouped, time.Second+p.hooks.tick, true
	p.settings.rewinds = o.Rewinds
}
