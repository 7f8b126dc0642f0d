package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/config"
	"github.com/pulsar-redelivery/redelivery/internal/policies"
	"github.com/pulsar-redelivery/redelivery/nack"
)

// maxRedeliveries is how many redeliveries a plan looks ahead.
const maxRedeliveries = 10_000

// The ways in which a message can fail.
const (
	nacked     = "nack"
	timedOut   = "ackTimeout"
	reconsumed = "reconsume"
)

// failure is a message that keeps failing in one of these ways.
type failure struct {
	name    string // of the consumer or the policy in the file; "" if flags describe the failure
	of      string
	timeout time.Duration
	policy  backoff.RedeliveryBackoff
	limit   uint64 // of deliveries or, if the message is reconsumed, of retries; 0 for none
	unread  bool   // the file names no subscription that would keep dead letters
	discard bool   // the message is acknowledged in place of a dead letter
}

// fromFile returns the failures of a file's consumers and the plans of its workers. If wanted is not "", it leaves out
// consumers and workers with other names. If the file has neither consumers nor workers, it returns a failure for each
// policy.
func fromFile(path, wanted string, stderr io.Writer) ([]failure, []workerPlan, error) {
	c, err := loadFile(path, "plan", stderr)
	if err != nil {
		return nil, nil, err
	}
	var cases []failure
	for _, name := range slices.Sorted(maps.Keys(c.Consumers)) {
		if wanted == "" || name == wanted {
			cases = append(cases, ofConsumer(name, c.Consumers[name])...)
		}
	}
	workers := ofWorkers(c, wanted)
	if wanted != "" && len(cases)+len(workers) == 0 {
		names := slices.Concat(slices.Collect(maps.Keys(c.Consumers)), slices.Collect(maps.Keys(c.Workers)))
		slices.Sort(names)
		there := cmp.Or(strings.Join(slices.Compact(names), ", "), "it has none")
		return nil, nil, fmt.Errorf("-consumer is %q, want one of the file's (%s)", wanted, there)
	}
	if len(c.Consumers)+len(c.Workers) == 0 {
		for _, name := range slices.Sorted(maps.Keys(c.Policies)) {
			cases = append(cases, failure{name: name, of: nacked, policy: c.Policies[name]})
		}
	}
	return cases, workers, nil
}

// ofConsumer returns a failure for each way of failing that c has options for. If c has no option for nacks, ofConsumer
// adds nacks with the default delay, unless c has an ack timeout and no ReconsumeBackoff.
func ofConsumer(name string, c config.Consumer) []failure {
	var cases []failure
	fails := func(of string, timeout time.Duration, policy backoff.RedeliveryBackoff) {
		limit := c.MaxDeliveries
		if of == reconsumed {
			limit = cmp.Or(c.MaxReconsumes, c.MaxDeliveries)
		}
		cases = append(cases, failure{name, of, timeout, policy, uint64(limit),
			c.InitialSubscriptionName == "" && !c.Discard, c.Discard})
	}
	if c.NackRedeliveryBackoff != nil {
		fails(nacked, 0, c.NackRedeliveryBackoff)
	}
	if c.NackRedeliveryDelay != nil {
		fails(nacked, 0, backoff.Fixed(*c.NackRedeliveryDelay))
	}
	if len(cases) == 0 && (c.AckTimeout == 0 || c.ReconsumeBackoff != nil) {
		fails(nacked, 0, backoff.Fixed(nack.DefaultDelay))
	}
	if c.AckTimeout > 0 {
		fails(timedOut, c.AckTimeout, c.AckTimeoutRedeliveryBackoff)
	}
	if c.ReconsumeBackoff != nil {
		fails(reconsumed, 0, c.ReconsumeBackoff)
	}
	return cases
}

// unread is the warning that no subscription keeps the dead letters.
const unread = "no initialSubscriptionName: the broker may delete dead letters"

// plan is the life of a message. Its JSON is in seconds.
type plan struct {
	Name          string       `json:"name,omitempty"`
	Of            string       `json:"of"` // nack, ackTimeout or reconsume
	AckTimeout    seconds      `json:"ackTimeout,omitempty"`
	Redeliveries  []redelivery `json:"redeliveries"`
	MaxDeliveries uint64       `json:"maxDeliveries,omitempty"`
	MaxReconsumes uint64       `json:"maxReconsumes,omitempty"`
	Dead          *redelivery  `json:"dead,omitempty"`    // the dead letter that is made instead of the next redelivery
	Discard       bool         `json:"discard,omitempty"` // the message is acknowledged in place of the dead letter
	Warning       string       `json:"warning,omitempty"`
}

type redelivery struct {
	Redelivery int     `json:"redelivery,omitempty"` // from 1; 0 if it is a dead letter
	Delay      seconds `json:"delay"`                // since the last failure; for an ack timeout, since the last delivery
	Shortest   seconds `json:"shortest"`             // with jitter
	Longest    seconds `json:"longest"`
	Total      seconds `json:"total"` // since the first delivery, if handlers fail at once
}

type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) { return []byte(formatFloat(time.Duration(s))), nil }

// newPlan returns a plan of at most the given number of redeliveries. After the last delivery, a nack makes a dead
// letter at once, and an ack timeout makes a dead letter when the timeout ends. A message that is reconsumed after its
// last retry becomes a dead letter at once.
func newPlan(c failure, redeliveries int) plan {
	p := plan{Name: c.name, Of: c.of, AckTimeout: seconds(c.timeout), Redeliveries: []redelivery{}, Discard: c.discard}
	if c.of == reconsumed {
		p.MaxReconsumes = c.limit
	} else {
		p.MaxDeliveries = c.limit
	}
	if c.unread && c.limit > 0 {
		p.Warning = unread
	}
	var total time.Duration
	next := func(n int) redelivery {
		shortest, longest := policies.Bounds(c.policy, uint32(n))
		delay := add(c.timeout, shortest+(longest-shortest)/2)
		total = add(total, delay)
		return redelivery{n + 1, seconds(delay), seconds(add(c.timeout, shortest)), seconds(add(c.timeout, longest)),
			seconds(total)}
	}
	for n := range maxRedeliveries {
		switch r := (redelivery{}); {
		case c.limit > 0 && uint64(n)+1 == p.deliveries():
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
		case c.limit == 0:
			return p
		default:
			next(n) // adds the delay to the total
		}
	}
	return p
}

// add returns a + b, or the longest time.Duration if the sum is longer than that.
func add(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
