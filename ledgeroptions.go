package redelivery

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
	"github.com/pulsar-redelivery/redelivery/nack"
)

// ledgerOptions returns what a Ledger is to know of the consumer; p is nil of one that Wrap got.
func (c *Consumer) ledgerOptions(p *preparation, buffer int, hasQueue bool) ledger.Options {
	s := c.settings
	o := ledger.Options{
		MemoryLimit:   s.memoryLimit,
		Queue:         defaultQueue + buffer,
		AckGroup:      ledger.AckGroup{Size: defaultAckGroup},
		SendDelay:     sendSlack + defaultAckTime,
		Keeps:         s.source != FromBroker,
		MaxDeliveries: c.publisher.maxDeliveries,
		Observed:      c.observer.any,
		Timed:         c.observer.timed,
		Calls: ledger.Calls{
			Ask:      c.ask,
			Wake:     func() { c.intake.Wake() },
			AckAgain: c.ackAllAgain,
			GiveUp:   func(d ledger.Delivery) { c.giveUpAside(d, ledger.Leaving) },
			TimedOut: c.timedOut(),
			Settled:  c.settledIn(),
		},
	}
	if p != nil {
		p.ledgerOptions(&o)
		o.WholeBatches = o.WholeBatches && isUpstreams(c.current()) // another's may have its own way
	} else {
		o.AskDelay = nack.DefaultDelay * 4 / 3 // unless it has one of its own
	}
	if !hasQueue {
		o.MemoryLimit, o.Queue = 0, 1 // a Receive that waits for a zero-queue consumer's next message cannot wait for one in memory too
	}
	return o
}

const (
	defaultQueue    = 1000 // upstream's ReceiverQueueSize
	defaultAckGroup = 1000 // and its AckGroupingOptions
	defaultAckTime  = 100 * time.Millisecond
	longGrouped     = 24 * time.Hour
	sendSlack       = 2 * time.Second // for a busy machine, and for a link that is dead already
)

// ledgerOptions adds what is known of the inner consumer.
func (p *preparation) ledgerOptions(o *ledger.Options) {
	kind := p.opts.Type
	o.RedeliversAll, o.OneTopic = p.hooks.redeliversAll, p.hooks.children == 1
	o.IndexAcks = p.indexAcks
	o.WholeBatches = o.IndexAcks == ledger.NoIndexAcks && !p.opts.AckWithResponse && len(p.hooks.of) == 0
	o.NonDurable = p.opts.SubscriptionMode == pulsar.NonDurable
	o.Others = delays(kind) && !o.NonDurable && p.settings.source == FromAuto
	o.KeyOrder = o.Others && kind == pulsar.KeyShared
	o.Queue += p.queue() - defaultQueue
	grouped := defaultAckTime
	if g := p.opts.AckGroupingOptions; g != nil {
		grouped, o.AckGroup.Size = min(max(0, g.MaxTime), longGrouped), int(g.MaxSize)
		if g.MaxTime <= 0 && g.MaxSize > 1 { // until there are so many
			grouped, o.AckGroup.BySize = defaultAckTime, true
		}
	}
	o.DropsCovered = !o.NonDurable && !p.opts.AckWithResponse && o.AckGroup.Size > 1
	o.SendDelay, o.AskDelay, o.ReconnectEvents = sendSlack+grouped, time.Second+p.hooks.tick, true
}
