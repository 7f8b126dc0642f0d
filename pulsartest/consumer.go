package pulsartest

import (
	"math"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

type consumer struct {
	session  *session
	sub      *subscription
	id       uint64
	name     string
	priority int32
	epoch    uint64
	keys     wire.KeySharedMeta
	meta     []wire.KeyValue
	permits  int // how many messages may be sent to the consumer; below 0 after a large batch
	deferred int // permits that came while the consumer was blocked
	unacked  int // unacknowledged messages, on Shared and Key_Shared
	blocked  bool
	ended    bool // whether the client was notified that the topic has ended
	traffic
}

// available reports whether the broker may send messages to c.
func (c *consumer) available() bool { return c.permits > 0 && !c.blocked && !c.session.gone }

// add adds to the numbers of unacknowledged messages of c and of its subscription. Each of the two is then blocked or
// unblocked by its own limit.
func (c *consumer) add(unacked int) {
	limit, subLimit := c.sub.topic.unackedLimits()
	c.unacked += unacked
	c.sub.unacked += unacked
	if limit > 0 && c.unacked >= limit {
		c.blocked = true
	} else if limit <= 0 || c.unacked <= limit/2 {
		c.unblock()
	}
	if subLimit > 0 && c.sub.unacked >= subLimit {
		c.sub.blocked = true
	} else if subLimit <= 0 || c.sub.unacked < subLimit/2 {
		c.sub.blocked = false
	}
}

func (c *consumer) unblock() {
	c.blocked = false
	c.permits += c.deferred
	c.deferred = 0
}

// flow permits more messages.
func (c *consumer) flow(messages int) {
	if c.blocked {
		c.deferred = min(c.deferred+messages, math.MaxInt32)
		return
	}
	c.permits = min(c.permits+messages, math.MaxInt32)
}

// start returns the offset at which a reader starts: the offset of the entry that id names. The client itself skips
// the messages of this entry that come before the reader's start. If id is nil or past the end, the initial
// position decides.
func (t *topic) start(id *wire.MessageID, position wire.InitialPosition) int {
	i := len(t.log)
	if id != nil && id.Ledger != math.MaxUint64 { // not the earliest position
		i, _ = t.find(id.Ledger, id.Entry)
		if id.Entry == math.MaxUint64 {
			i, _ = t.find(id.Ledger, 0)
		}
	}
	if id != nil && id.Ledger == math.MaxUint64 || i == len(t.log) && position == wire.Earliest {
		return 0
	}
	return i
}
