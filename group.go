package redelivery

import (
	"math"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/partition"
)

// now returns the time as the group counts it.
func (c *Consumer) now() time.Duration { return time.Since(c.start) }

// lock locks the group and returns the time. One of the unlock methods must follow.
func (c *Consumer) lock() time.Duration {
	c.mu.Lock()
	return c.now()
}

// unlockAndAct lets the due timers go off, unlocks the group, and carries out its decisions.
func (c *Consumer) unlockAndAct(now time.Duration) {
	decisions := c.group.Advance(now)
	c.setAlarm(now)
	ready := c.group.IsReady()
	if ready != c.isReady.Load() {
		c.isReady.Store(ready)
	}
	if ready && c.group.IsReceiverWaiting() {
		c.wakeUp()
	}
	c.unlock()
	if decisions != nil {
		c.carryOut(decisions)
	}
}

// unlock unlocks the group after calls that neither decide anything nor set a timer.
func (c *Consumer) unlock() {
	var over chan struct{}
	if c.offered != nil && c.offered.withdraw(c.group) {
		over = c.offered.over
	}
	c.mu.Unlock()
	if over != nil { // otherwise the application could take a settled message from Chan
		<-over
	}
}

// unlockInside unlocks the group inside a callback from upstream, in which upstream must not be called. The alarm
// carries out the decisions later.
func (c *Consumer) unlockInside(now time.Duration) {
	c.setAlarm(now)
	if c.offered != nil {
		c.offered.withdraw(c.group)
	}
	c.mu.Unlock()
}

// wakeUp wakes the goroutine that waits for a message from upstream, so that it looks for other work.
func (c *Consumer) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default: // the goroutine will be woken already
	}
}

// setAlarm sets the alarm to the group's next timer. While a receiver waits, the alarm goes off within a second. The
// caller holds mu.
func (c *Consumer) setAlarm(now time.Duration) {
	at, ok := c.group.NextTimer()
	if !ok {
		at = math.MaxInt64
	}
	if c.group.IsReceiverWaiting() {
		at = min(at, now+checkTime)
	}
	if at < c.alarmAt && c.ended.Err() == nil {
		c.alarmAt = at
		c.alarm.Reset(at - now)
	}
}

// alarmOver lets the group's timers go off. The alarm calls it.
func (c *Consumer) alarmOver() {
	now := c.lock()
	c.alarmAt = math.MaxInt64
	if c.hooks.Reconnecting() == 0 { // under the lock: otherwise a connection could be lost in between
		c.group.Connected()
	}
	unacknowledged := 0
	if c.settings.isShared() && c.group.ReceiverWaitTime(now) >= checkTime {
		unacknowledged = c.group.Unacknowledged()
	}
	c.unlockAndAct(now)
	if unacknowledged >= nearLimit && c.blocked.on.CompareAndSwap(false, true) {
		c.reportBlocked(now, unacknowledged)
	}
}

// checkTime is how often a Consumer that waits for a message checks whether the broker or the inner consumer has
// stopped.
const checkTime = time.Second

func (c *Consumer) carryOut(d *partition.Decisions) {
	for _, r := range d.Requests {
		c.request(r)
	}
	for _, d := range d.TimedOut {
		c.reportTimeout(d)
	}
	for _, d := range d.DeadLetters {
		c.letters.add(c, func() { c.makeDeadLetter(d, c.nackDelay(d.Count), nil, true) })
	}
	if c.attempts != nil {
		for _, d := range d.Settled {
			c.attempts.Settled(keyOf(d.ID))
		}
	}
}

// request asks the broker to send an entry again. The inner consumer sends the request with its next tick.
func (c *Consumer) request(r partition.Request) {
	if !c.calls.enter() { // a request to a closed consumer can hang
		return
	}
	defer c.calls.leave()
	id := r.ID.(pulsar.MessageID)
	c.hooks.Asked()
	r.Source.(pulsar.Consumer).NackID(id)
	if c.observer.Asked != nil {
		c.observerCalls.add(c, func() { c.observer.Asked(c.event(r.Topic, id, nil)) })
	}
}

func (c *Consumer) lost() {
	now := c.lock()
	c.loss.any.Store(true)
	c.group.Lost(now)
	c.unlockInside(now)
	c.recallZeroQueue()
	c.reportLoss("", LostConnection)
}

// recallZeroQueue ends the Receive of a zero-queue inner consumer after a loss of the connection, also if no goroutine
// waits for its message: an inner consumer that gives up cannot close itself during a Receive.
func (c *Consumer) recallZeroQueue() {
	if !c.settings.opts.EnableZeroQueueConsumer || c.inner.consumer.Load() == nil || !c.goroutines.enter() {
		return
	}
	go func() {
		defer c.goroutines.leave()
		if c.interrupt() == nil {
			c.turn.give()
		}
	}()
}

// prefetched handles a message that upstream has received from the broker, and that cannot be read yet.
func (c *Consumer) prefetched(cm pulsar.ConsumerMessage) {
	if !c.loss.any.Load() || !isTracked(cm.Message) {
		return
	}
	now := c.lock()
	c.group.Sent(now, idOf(cm.Topic(), cm.ID()), cm.Consumer, cm.ID())
	c.unlockInside(now)
}

// active handles a change of the active consumer of a Failover partition.
func (c *Consumer) active(child any, topic string, active bool) {
	now := c.lock()
	c.loss.any.Store(true)
	c.group.Activate(now, topic, child, active)
	c.unlockInside(now)
	if !active {
		c.reportLoss(topic, LostPartition)
	}
}
