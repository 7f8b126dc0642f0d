package doctor

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/policies"
)

// schedule has how long a message waits if it fails again and again.
type schedule struct {
	of      string        // nacks, ack timeouts or retries
	longest time.Duration // longest delay
	total   time.Duration // sum of all delays until the message is a dead letter, or of 10,000 delays if ends is false
	ends    bool          // the message becomes a dead letter
}

// maxDelays is how many delays are read from a policy at most.
const maxDelays = 10_000

// schedules returns the schedules of nacks, ack timeouts and retries, as far as the setup has them.
func (v *visit) schedules() []schedule {
	p := v.Policy
	all := []schedule{sum("nacks", p.Nack, 0, p.MaxDeliveries)}
	if p.AckTimeout > 0 {
		all = append(all, sum("ack timeouts", p.AckTimeoutBackoff, p.AckTimeout, p.MaxDeliveries))
	}
	if v.retry() != "" {
		limit := cmp.Or(p.MaxReconsumes, p.MaxDeliveries)
		if limit > 0 {
			limit++ // the first delivery
		}
		all = append(all, sum("retries", p.Reconsume, 0, limit))
	}
	return all
}

// sum adds up the delays before a message's last delivery, each plus timeout.
func sum(of string, b backoff.RedeliveryBackoff, timeout time.Duration, deliveries uint32) schedule {
	s := schedule{of: of, ends: deliveries > 0}
	n := uint32(maxDelays)
	if s.ends {
		n = min(n, deliveries-1)
	}
	for i := range n {
		_, d := policies.Bounds(b, i)
		d = add(d, timeout)
		s.longest, s.total = max(s.longest, d), add(s.total, d)
	}
	return s
}

// add returns the sum, or the longest time.Duration if that is less.
func add(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// schedule returns the longest of these schedules. It ends if all of them end.
func (v *visit) schedule(of ...string) schedule {
	s := schedule{ends: true}
	for _, one := range v.schedules() {
		if slices.Contains(of, one.of) {
			s.longest, s.total, s.ends = max(s.longest, one.longest), max(s.total, one.total), s.ends && one.ends
		}
	}
	return s
}

// inPlace returns how long a message waits on its own topic, by nacks or ack timeouts. A wait on the retry topic does
// not count.
func (v *visit) inPlace() schedule {
	s := v.schedule("nacks", "ack timeouts")
	if at := v.Policy.NackRetryTopic; at > 0 && v.Policy.AckTimeout == 0 {
		s.longest, s.total = min(s.longest, at), min(s.total, at)
	}
	return s
}

// onRetryTopic returns the longest delay on the retry topic; 0 if no message goes there.
func (v *visit) onRetryTopic() (longest time.Duration) {
	for _, one := range v.schedules() {
		if one.of == "retries" || one.of == "nacks" && v.Policy.NackRetryTopic > 0 {
			longest = max(longest, one.longest)
		}
	}
	return longest
}

// longest returns how long a message waits at most: until it is a dead letter or, if it never becomes one, for its
// longest delay. The time to live must be longer than that.
func (v *visit) longest() time.Duration {
	s := v.inPlace()
	if s.ends {
		s.longest = s.total
	}
	return max(s.longest, v.onRetryTopic())
}

// waiting returns how many messages wait for their redelivery at one moment, at the rate of the last minute. If
// messages never become dead letters, it counts the messages that fail in half an hour.
func (v *visit) waiting() (n int, rate float64, wait time.Duration) {
	s := v.inPlace()
	wait = s.total
	if !s.ends {
		wait = outage
	}
	if st, err := v.stats(v.Topic); err == nil {
		rate = st.MsgRateIn
	}
	return int(rate * v.Load.Failing * wait.Seconds()), rate, wait
}

// outage is the length of a typical outage.
const outage = 30 * time.Minute
