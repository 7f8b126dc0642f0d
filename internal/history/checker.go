package history

import (
	"cmp"
	"slices"
	"time"
)

// Checker finds faults in a history. It keeps the last lines of each message. One goroutine may use it.
type Checker struct {
	rules     Rules
	messages  map[string]*message
	order     []*message // the messages, in the order of their first lines
	keys      map[string]*key
	faults    map[string][]*Line // by consumer: disconnected, killed and closed; "" means every consumer
	drained   *Line
	calmSince int64 // time of the last event after which consumers may need time to connect again
	running   map[string]bool
	receives  bool // the history has received events
	last      *Line
	summary   Summary
	findings  []Finding
}

// message is the state of a message. A nil line means that the event did not happen.
type message struct {
	name       string
	published  *Line
	key        *key
	number     int // place among the published messages of its key
	delivered  *Line
	failures   []*Line // the last failure of each consumer and copy, if no delivery followed it
	deliveries []*Line // the last delivery of each copy to each consumer
	settled    *Line   // nil again once the settled message is delivered
	done       bool    // the message was settled once
	acking     *Line
	letter     *Line
	retries    map[int][]*Line  // the reconsumed lines that asked for each retry
	copies     map[int][]string // the copies of each retry, in the order in which they first came
	moved      []*Line          // the reconsumed lines whose copies have not come again since
	received   []*Line          // the first line of each consumer that received it
	dueSince   int64            // when it was published, or when its delay was over
	waits      bool             // it waits for a delivery
	unsure     bool             // its state is unknown: a call was refused, or no line says which retry a delivery was
	stuck      bool             // a finding reports that it is stuck
	handled    bool             // checkSerial has seen that a handler finished it
}

// key is the order of the messages of one key.
type key struct {
	published       int
	latest          *message // of the delivered messages, the one that was published last
	latestDelivery  *Line    // the first delivery of latest
	handled         *message // of the handled messages, the one that was published last
	handledDelivery *Line    // the delivery of handled
}

// New makes a Checker.
func New(rules Rules) *Checker {
	rules.Window = cmp.Or(rules.Window, DefaultWindow)
	rules.Patience = cmp.Or(rules.Patience, DefaultPatience)
	return &Checker{rules: rules, messages: map[string]*message{}, keys: map[string]*key{},
		faults: map[string][]*Line{}, running: map[string]bool{}}
}

// Check reads sources to their end.
func Check(rules Rules, sources ...Source) (Summary, []Finding, error) {
	c := New(rules)
	if err := read(c.Add, sources...); err != nil {
		return Summary{}, nil, err
	}
	summary, findings := c.Finish()
	return summary, findings, nil
}

// Add adds the next line. Its time must not be before that of the previous line.
func (c *Checker) Add(l *Line) {
	c.last = l
	switch l.Kind { //nolint:exhaustive // the other kinds are about messages
	case Started:
		c.endCalm(l)
		c.running[l.Consumer] = true
		return
	case Disconnected, Killed, Closed:
		c.endCalm(l)
		if l.Kind != Closed {
			c.summary.Faults++
		}
		if l.Kind != Disconnected {
			delete(c.running, l.Consumer)
		}
		c.faults[l.Consumer] = append(c.faults[l.Consumer], l)
		return
	case Drained:
		c.drained = l
		return
	}
	m := c.message(l)
	switch l.Kind { //nolint:exhaustive // the other kinds are about consumers
	case Published:
		c.publish(m, l)
	case Received:
		c.receives = true
		if !slices.ContainsFunc(m.received, func(r *Line) bool { return r.Consumer == l.Consumer }) {
			m.received = append(m.received, l)
		}
	case Delivered:
		c.deliver(m, l)
	case Nacked, Snoozed, Reconsumed:
		c.addFailure(m, l)
	case Acking:
		c.checkSerial(m, l)
		m.acking = l
	case Acked:
		c.checkSerial(m, l)
		c.settle(m, l)
	case Refused:
		m.unsure = true
		m.failures = slices.DeleteFunc(m.failures, func(f *Line) bool { return f.Consumer == l.Consumer })
		m.moved = slices.DeleteFunc(m.moved, func(d *Line) bool { return d.Consumer == l.Consumer })
	case DeadLettered:
		c.deadLetter(m, l)
	}
}

// endCalm notes that consumers may need time to connect again after l. First it reports the messages that have waited
// too long before l.
func (c *Checker) endCalm(l *Line) {
	if len(c.running) > 0 && micros(l.At-c.calmSince) > c.rules.Patience {
		for _, m := range c.order {
			c.checkStuck(m, l)
		}
	}
	c.calmSince = l.At
}

func (c *Checker) message(l *Line) *message {
	m := c.messages[l.Message]
	if m == nil {
		m = &message{name: l.Message}
		c.messages[l.Message] = m
		c.order = append(c.order, m)
	}
	return m
}

func (c *Checker) publish(m *message, l *Line) {
	if m.published != nil {
		m.unsure = true
		return
	}
	m.published, m.dueSince, m.waits = l, l.At, m.delivered == nil
	if l.Key == "" {
		return
	}
	k := c.keys[l.Key]
	if k == nil {
		k = &key{}
		c.keys[l.Key] = k
	}
	k.published++
	m.key, m.number = k, k.published
}

func (c *Checker) addFailure(m *message, l *Line) {
	c.summary.Failures++
	if l.Kind == Reconsumed {
		m.reconsume(l)
	}
	m.failures = append(slices.DeleteFunc(m.failures, l.isOfSameCopy), l)
	m.dueSince, m.waits = l.At+l.Delay, true
}

func (c *Checker) settle(m *message, l *Line) {
	if !m.done {
		c.summary.Settled++
	}
	m.done = true
	if m.settled == nil || !m.settled.Confirmed {
		m.settled = l
	}
	m.waits, m.failures = false, nil
}

func (c *Checker) deadLetter(m *message, l *Line) {
	c.summary.Letters++
	switch {
	case m.letter != nil && !m.unsure && !c.anyFault(m.delivered, l):
		c.addFinding(Letters, m, "became a dead letter twice", m.letter, l)
	case m.settled != nil && m.settled.Kind == Acked && !m.unsure:
		c.addFinding(Letters, m, "became a dead letter although it was acknowledged", m.settled, l)
	}
	m.letter = l
	c.settle(m, l)
}

// deliver checks a delivery.
func (c *Checker) deliver(m *message, l *Line) {
	c.summary.Deliveries++
	c.running[l.Consumer] = true
	c.summary.Longest = max(c.summary.Longest, c.overdue(m, l.At))
	c.checkStuck(m, l)
	second := c.checkCopy(m, l)
	if m.settled != nil {
		c.summary.Doubles++
		if !second {
			c.checkDouble(m, m.settled, l)
		}
		m.settled, m.acking, m.deliveries = nil, nil, nil
	}
	if m.delivered == nil {
		c.checkOrder(m, l)
	}
	c.checkDelay(m, l)
	c.checkCount(m, l)
	m.failures = slices.DeleteFunc(m.failures, l.isOfSameCopy)
	m.deliveries = append(slices.DeleteFunc(m.deliveries, l.isOfSameCopy), l)
	m.delivered, m.waits = l, false
}

// Finish returns the summary and the findings of the whole history. Findings are in the order of their last lines.
func (c *Checker) Finish() (Summary, []Finding) {
	c.summary.Messages = len(c.order)
	for _, m := range c.order {
		if m.done {
			continue
		}
		lines := []*Line{m.published, m.delivered}
		if m.waits && len(m.failures) > 0 {
			lines = append(lines, m.origin())
		}
		switch {
		case c.mayBeSettled(m):
			c.summary.Settled++
		case c.drained != nil && c.drained.At >= m.lastAt():
			lines = append(lines, c.drained)
			c.addFinding(Lost, m, "was never acknowledged, and the broker has nothing left", lines...)
		default:
			c.summary.Unfinished++
			if len(c.running) > 0 {
				c.checkStuck(m, c.last)
			}
		}
	}
	return c.summary, c.findings
}

// lastAt returns the time of a message's last line.
func (m *message) lastAt() (at int64) {
	for _, l := range append(m.failures, m.published, m.delivered) {
		if l != nil {
			at = max(at, l.At)
		}
	}
	return at
}

// addFinding adds a finding. It leaves out lines that are nil.
func (c *Checker) addFinding(fault Fault, m *message, text string, lines ...*Line) {
	m.stuck = m.stuck || fault == Stuck
	shown := slices.DeleteFunc(slices.Clone(lines), func(l *Line) bool { return l == nil })
	slices.SortStableFunc(shown, func(a, b *Line) int { return cmp.Compare(a.At, b.At) })
	c.findings = append(c.findings, Finding{fault, m.name, text, slices.Compact(shown)})
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func round(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d
	}
	return d.Round(time.Millisecond)
}
