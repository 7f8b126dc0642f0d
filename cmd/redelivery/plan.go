package main

import (
	"math"
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/config"
	"github.com/pulsar-redelivery/redelivery/internal/policies"
	"github.com/pulsar-redelivery/redelivery/nack"
)

// maxRedeliveries is how far a plan looks ahead.
const maxRedeliveries = 10_000

// The ways in which an application fails on a message.
const (
	nacked     = "nack"
	timedOut   = "ackTimeout"
	reconsumed = "reconsume"
)

// failure is a message on which a consumer keeps failing in one way.
type failure struct {
	name          string // of the consumer or the policy, if there is one
	of            string
	timeout       time.Duration
	policy        backoff.RedeliveryBackoff
	maxDeliveries uint64 // 0 for no limit
}

// ofConsumer has a failure for each way that the file says something about, and the default for nacks unless the consumer has an
// ack timeout alone.
func ofConsumer(name string, c config.Consumer) []failure {
	var cases []failure
	limit := uint64(c.MaxDeliveries)
	if c.NackRedeliveryBackoff != nil {
		cases = append(cases, failure{name, nacked, 0, c.NackRedeliveryBackoff, limit})
	}
	if c.NackRedeliveryDelay != nil {
		cases = append(cases, failure{name, nacked, 0, backoff.Fixed(*c.NackRedeliveryDelay), limit})
	}
	if len(cases) == 0 && (c.AckTimeout == 0 || c.ReconsumeBackoff != nil) {
		cases = append(cases, failure{name, nacked, 0, backoff.Fixed(nack.DefaultDelay), limit})
	}
	if c.AckTimeout > 0 {
		cases = append(cases, failure{name, timedOut, c.AckTimeout, c.AckTimeoutRedeliveryBackoff, limit})
	}
	if c.ReconsumeBackoff != nil {
		cases = append(cases, failure{name, reconsumed, 0, c.ReconsumeBackoff, limit})
	}
	return cases
}

// plan is what becomes of the message. Its JSON is in seconds.
type plan struct {
	Name          string       `json:"name,omitempty"`
	Of            string       `json:"of"` // nack, ackTimeout or reconsume
	AckTimeout    seconds      `json:"ackTimeout,omitempty"`
	Redeliveries  []redelivery `json:"redeliveries"`
	MaxDeliveries uint64       `json:"maxDeliveries,omitempty"`
	Dead          *redelivery  `json:"dead,omitempty"` // what comes in place of the next redelivery
}

type redelivery struct {
	Redelivery int     `json:"redelivery,omitempty"` // from 1; 0 if it is a dead letter
	Delay      seconds `json:"delay"`                // since the failure before
	Shortest   seconds `json:"shortest"`             // with jitter
	Longest    seconds `json:"longest"`
	Total      seconds `json:"total"` // since the first delivery, if each failure is at once
}

type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) { return []byte(formatFloat(time.Duration(s))), nil }

// newPlan looks at most the given number of redeliveries ahead. The last delivery's nack is a dead letter at once, its timeout when
// it is over; a reconsumed message is one when it is reconsumed once more, at once.
func newPlan(c failure, redeliveries int) plan {
	p := plan{Name: c.name, Of: c.of, AckTimeout: seconds(c.timeout), Redeliveries: []redelivery{}, MaxDeliveries: c.maxDeliveries}
	var total time.Duration
	next := func(n int) redelivery {
		shortest, longest := policies.Bounds(c.policy, uint32(n))
		delay := add(c.timeout, shortest+(longest-shortest)/2)
		total = add(total, delay)
		return redelivery{n + 1, seconds(delay), seconds(add(c.timeout, shortest)), seconds(add(c.timeout, longest)), seconds(total)}
	}
	for n := range maxRedeliveries {
		switch r := (redelivery{}); {
		case c.maxDeliveries > 0 && uint64(n)+1 == p.deliveries():
			if c.of == timedOut {
				r = next(n)
				r.Redelivery = 0
			} else {
				r.Total = seconds(total)
			}
			p.Dead = &r
			return p
		case n < redeliveries:
			p.Redeliveries = append(p.Redeliveries, next(n))
		case c.maxDeliveries == 0:
			return p
		default:
			next(n) // for the total
		}
	}
	return p
}

// add saturates: the longest delays add up to more than a time.Duration can hold.
func add(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
