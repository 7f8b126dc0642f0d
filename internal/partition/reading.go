package partition

import "time"

// reading measures how long the application has been reading. The time in which it waits for a message counts. If it
// takes a message without waiting, at most stepTime before that counts. A request is in vain if no answer comes while
// the application reads. While the application works on a message, an answer may be in upstream's queue.
type reading struct {
	total  time.Duration
	last   time.Duration // when total was last brought up to date
	waits  bool          // the application waits for a message
	began  time.Duration // when the wait began
	idleAt time.Duration // the last time at which the application had waited for idleTime and got nothing
}

const (
	idleTime = time.Second
	// stepTime limits how much of the time before a message counts as reading. Upstream shares a channel of ten
	// messages among its partitions: after a second of such steps without a message of a partition, no message of that
	// partition is in the channel.
	stepTime = 50 * time.Millisecond
)

// at returns how long the application has been reading until now.
func (r *reading) at(now time.Duration) time.Duration {
	if r.waits {
		r.total += now - r.last
		r.last = now
		if now-r.began >= idleTime {
			r.idleAt = now
		}
	}
	return r.total
}

// ReceiverWaits notes that the application waits for a message and that none is there.
func (g *Group) ReceiverWaits(now time.Duration) {
	r := &g.reading
	r.at(now)
	if !r.waits {
		r.waits, r.last, r.began = true, now, now
	}
}

// ReceiverContinues notes that the application no longer waits. Arrive calls it, and so does a Take that succeeds.
func (g *Group) ReceiverContinues(now time.Duration) {
	g.reading.at(now)
	g.reading.waits = false
}

// IsReceiverWaiting reports whether the application waits for a message.
func (g *Group) IsReceiverWaiting() bool { return g.reading.waits }

// ReceiverWaitTime returns how long the application has been waiting for a message; 0 if it does not wait.
func (g *Group) ReceiverWaitTime(now time.Duration) time.Duration {
	if !g.reading.waits {
		return 0
	}
	return now - g.reading.began
}

// took notes that a message was taken from upstream.
func (g *Group) took(now time.Duration, p *Partition) {
	r := &g.reading
	g.ReceiverContinues(now)
	if now > r.last {
		r.total += min(now-r.last, stepTime)
		r.last = now
	}
	p.readingWhenCopyCame = r.total
}
