package partition

import "time"

// reading measures for how long the application has been reading: while it waits for a message, and a little before
// each message that it takes. A request that was not answered while the application read was in vain. While the
// application works on a message, an answer may lie in upstream's queue.
type reading struct {
	total  time.Duration
	last   time.Duration // when a message was taken last
	waits  bool
	since  time.Duration // when the wait began, or total was last brought up to date
	began  time.Duration // when the wait began
	idleAt time.Duration // when the application last had waited for a whole idleTime and got nothing
}

const (
	idleTime = time.Second
	// stepTime is the longest time before a message that counts as reading. Upstream shares a channel of ten messages
	// among its partitions: after a second of such steps without a message of a partition, no message of that partition
	// is in the channel.
	stepTime = 50 * time.Millisecond
)

// at returns for how long the application has been reading until now.
func (r *reading) at(now time.Duration) time.Duration {
	if r.waits {
		r.total += now - r.since
		r.since = now
		if now-r.began >= idleTime {
			r.idleAt = now
		}
	}
	return r.total
}

// Wait notes that the application waits for a message and that none is there.
func (g *Group) Wait(now time.Duration) {
	r := &g.reading
	if r.at(now); !r.waits {
		r.waits, r.since, r.began = true, now, now
	}
}

// Unwait notes that the application waits no longer. Arrive calls Unwait, and so does a Take that succeeds.
func (g *Group) Unwait(now time.Duration) {
	r := &g.reading
	r.at(now)
	if r.waits {
		r.waits, r.last = false, now
	}
}

// Waits reports whether the application waits for a message.
func (g *Group) Waits() bool { return g.reading.waits }

// WaitsFor returns how long the application has waited for a message; 0 if it does not wait.
func (g *Group) WaitsFor(now time.Duration) time.Duration {
	if !g.reading.waits {
		return 0
	}
	return now - g.reading.began
}

// took notes that a message was taken from upstream.
func (g *Group) took(now time.Duration, p *Partition) {
	r := &g.reading
	if g.Unwait(now); now > r.last {
		r.total += min(now-r.last, stepTime)
		r.last = now
	}
	p.silence = r.total
}
