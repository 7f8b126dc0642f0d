package redelivery

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/partition"
)

// Stats are the counters of a Consumer since it was made, and its current state.
type Stats struct {
	Waiting int // messages that wait for their delay, for the broker, or for the next Receive
	Ready   int // those of Waiting whose delay is over: they wait for the broker or the next Receive
	// size of the messages in memory, including those that the application has; see WithMemoryLimit
	BufferedBytes int64
	Buffered      uint64 // copies that the broker sent early and that were kept in memory
	Dropped       uint64 // messages that were dropped because they come again; see Observer.Dropped
	Redelivered   uint64 // deliveries after a nack or an ack timeout; not of a message that was only snoozed
	Swallowed     uint64 // copies of settled messages; they were acknowledged again and not delivered
	Late          uint64 // redeliveries for which the broker took over a second
	Failed        uint64 // failures that no method could return as an error; each is logged

	// Blocked says that the broker may have stopped sending because too many messages are unacknowledged: see
	// Observer.Blocked. It is false again after the next message.
	Blocked bool

	Reconnecting int // topics, or partitions, that have no connection now; unknown (0) after Wrap

	// Unfinished counts settled messages of batches that also have unsettled messages. If the Consumer is closed now, a
	// broker that keeps no batch-index acknowledgements sends the settled messages again. Arriving counts the
	// prefetched messages of these batches. Both are 0 while IndexAcks is IndexAcksKept.
	Unfinished, Arriving int

	IndexAcks IndexAcks // whether the broker keeps the acknowledgement of one message of a batch

	OldestWaiting time.Duration // how long the longest-waiting message has waited; 0 without WithObserver
}

// IndexAcks says whether the broker keeps batch-index acknowledgements: acknowledgements of single messages of a batch.
// Brokers keep them if broker.conf has acknowledgmentAtBatchIndexLevelEnabled=true, which is not Pulsar's default. The
// protocol does not say whether a broker does. The Consumer learns it when a batch comes again.
type IndexAcks string

// Values of IndexAcks. If you set EnableBatchIndexAcknowledgment in pulsar.ConsumerOptions yourself, the value is
// IndexAcksKept until a batch shows otherwise; if Subscribe set it, the value begins as IndexAcksUnknown.
const (
	// no batch-index acknowledgement is sent: an acknowledgement reaches the broker when the whole batch is
	// acknowledged
	IndexAcksOff IndexAcks = "off"
	// they are sent, and the broker may keep them; after Wrap it is unknown whether they are sent
	IndexAcksUnknown IndexAcks = "unknown"
	IndexAcksIgnored IndexAcks = "ignored" // they are sent, and the broker sent an acknowledged message again
	// they are sent, and the broker leaves acknowledged messages out of their batches
	IndexAcksKept IndexAcks = "kept"
)

var indexAcks = map[partition.IndexAcks]IndexAcks{partition.NoIndexAcks: IndexAcksOff,
	partition.SentIndexAcks:    IndexAcksUnknown,
	partition.IgnoredIndexAcks: IndexAcksIgnored, partition.KeptIndexAcks: IndexAcksKept}

// Stats returns the Consumer's counters and its current state.
func (c *Consumer) Stats() Stats {
	now := c.lock()
	g := c.group.Stats()
	s := Stats{
		Waiting: g.Waiting + g.Ready + g.Asked, Ready: g.Ready + g.Asked, BufferedBytes: g.Bytes,
		Buffered: c.buffered.Load(), Dropped: c.dropped.Load(), Redelivered: c.redelivered.Load(),
		Swallowed: c.swallowed.Load(), Late: c.late.Load(), Failed: c.failures.Load(), Blocked: c.blocked.on.Load(),
		IndexAcks: indexAcks[c.group.IndexAcks()],
	}
	if c.settings.isWrapped {
		s.IndexAcks = IndexAcksUnknown
	}
	if s.IndexAcks != IndexAcksKept {
		s.Unfinished, s.Arriving = c.group.Unfinished(now)
	}
	if len(c.settings.observers) > 0 {
		s.OldestWaiting = c.group.Oldest(now)
	}
	c.unlockAndAct(now)
	s.Reconnecting = c.hooks.Reconnecting()
	return s
}

// blocked says whether the broker may have stopped sending.
type blocked struct {
	on     atomic.Bool
	logged atomic.Int64 // when it was last logged, in the group's time; 0 for never
}

// nearLimit is close to the number of unacknowledged messages at which the broker stops sending on Shared and
// Key_Shared: by default 50,000 for each consumer of a partition (maxUnackedMessagesPerConsumer).
const nearLimit = 45_000

// reportBlocked reports that the broker may have stopped sending, and logs it once a minute at most.
func (c *Consumer) reportBlocked(now time.Duration, n int) {
	if last := time.Duration(c.blocked.logged.Load()); last == 0 || now-last >= time.Minute {
		c.blocked.logged.Store(int64(now))
		c.log(slog.LevelWarn, "the broker may have stopped sending, because many messages are unacknowledged. "+
			"Waiting messages are among them; without batch-index acknowledgement, so is every message of a batch "+
			"while one of them waits",
			"unacknowledged", n)
	}
	if c.observer.Blocked != nil {
		c.observerCalls.add(c, func() { c.observer.Blocked(Blocked{c, c.settings.Subscription, n}) })
	}
}
