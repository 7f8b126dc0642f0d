package model

import (
	"fmt"
	"time"
)

// wasTaken reports whether the Consumer took a copy before the message was settled.
func (r *modelRun) wasTaken(c *modelCopy, m *modelExpected) bool {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	return c.put > 0 && c.put <= m.had
}

// because describes an unexpected message, and guesses why it came.
func (r *modelRun) because(m *modelExpected, o modelOrigin) string {
	c := o.copy
	why := fmt.Sprintf("the copy was sent %v ago %v, over connection %d, and left the queue %v ago; "+
		"the previous copy was sent over connection %d",
		time.Since(c.sent), c.why, c.epoch, time.Since(o.taken), m.copy.epoch)
	guess := "?"
	switch {
	case m.how == "a cumulative acknowledgement of a settled message":
		guess = "that acknowledgement was ignored"
	case m.stand == modelSettled && r.wasTaken(c, m):
		guess = "it was on its way from the Consumer to the application"
	case c.epoch > m.copy.epoch && m.at.After(o.grabbed):
		guess = "its first copy outlived the connection, in the channel"
	case c.epoch > m.copy.epoch:
		guess = "its acknowledgement was lost, or late"
	case c.why == "since a message was requested", c.why == "since the consumer is active again":
		guess = "a rewind sent a message again that was in the queue"
	case c.why == "since it was requested":
		guess = "it was requested again while the requested copy was in the queue"
	}
	return why + "; a guess: " + guess
}

// missing describes up to most messages that have not come or are not settled.
func (r *modelRun) missing(most int) (missing []string) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.cons.parts {
		for _, e := range p.sub.entries {
			if p.isAway {
				break
			}
			for i := range e.size {
				m := r.known[keyOf(e, i)]
				switch {
				case m != nil && m.stand == modelSettled, e.skipped, e.otherDid:
				case e.acked[i] && (e.mixed || m != nil && m.unsure):
				default:
					missing = append(missing, fmt.Sprintf("%v.%d %v, done %t", e, i, m, e.done))
				}
				if len(missing) == most {
					return missing
				}
			}
		}
	}
	return missing
}
