package model

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// modelDeep has the settings that only deep runs draw. It is zero in other runs.
type modelDeep struct {
	Deep      bool
	Mix       bool // both Receive and Chan
	Given     int  // the buffer of the application's MessageChannel; below 0 if the application has no channel
	Buffer    int  // the size of modelStage, if the library's channel has no buffer
	UpTo      int  // every UpTo-th message is acknowledged cumulatively; if 0, none is
	Faultless bool // the application never nacks a message that it has
	Away      bool // one topic has no broker until all other messages are settled
}

// deepen draws the settings of modelDeep from separate random numbers, so that they do not change other settings.
func (c *modelConfig) deepen() {
	rng := rand.New(rand.NewPCG(c.base(), 78))
	often := func(percent int) bool { return rng.IntN(100) < percent }
	c.Deep, c.Given = true, -1
	c.Faultless = often(30)
	if often(60) {
		c.Chan, c.DoneContexts = true, false
	}
	c.Mix = often(40) && c.Chan
	if given := []int{0, 1, 10}[rng.IntN(3)]; often(30) && c.Chan {
		c.Given = given
		c.Timeout = 0 // the timeout of a message in the channel would begin at an unknown time
	}
	if upTo := []int{1, 1, 3, 20}[rng.IntN(4)]; often(70) && c.rewinds() {
		c.UpTo, c.Workers, c.Cumulative = upTo, 1, true
		if !c.Response {
			c.Seeks, c.Resets = false, false
		}
	}
	c.Away = often(40) && c.Topics > 1 && !c.Abrupt
	if c.Away {
		c.Response, c.AckErrors = false, false // with responses, acknowledgements would wait for the broker
		c.Group = pulsar.AckGroupingOptions{MaxSize: 1000, MaxTime: 100 * time.Millisecond}
	}
	if buffer := []int{1, 10, 64}[rng.IntN(3)]; often(30) {
		c.Buffer = buffer
	}
}

func (c *modelConfig) rewinds() bool { return c.Kind == pulsar.Exclusive || c.Kind == pulsar.Failover }

// ordered reports whether the application gets the messages of a topic in order.
func (c *modelConfig) ordered() bool {
	return c.rewinds() && c.Workers == 1 && !c.Others && !c.Seeks && !c.Resets && !c.Panics && !c.PanicsInside
}

// checkOrder checks that the first deliveries of a topic's messages are in the order of the topic. The caller holds
// r.mu.
func (r *modelRun) checkOrder(m *modelExpected) {
	if m.stand != modelFresh {
		return
	}
	place := modelPlace{m.entry.pos, int(m.key.index)}
	if last, ok := r.reached[m.entry.sub]; ok && place.compare(last) < 0 && r.cfg.ordered() {
		r.w.fail("%v is out of order: it comes for the first time after message %d of entry %d", m, last.index, last.pos)
	} else if !ok || place.compare(last) > 0 {
		r.reached[m.entry.sub] = place
	}
}

// upTo acknowledges every UpTo-th message cumulatively as soon as it is delivered. It nacks a few of these messages
// instead.
func (r *modelRun) upTo(msg pulsar.Message) {
	o := r.origin(msg)
	entries := r.entriesTo(o.copy.entry)
	r.mu.Lock()
	m := r.known[keyOf(o.copy.entry, o.copy.index)]
	if m == nil || m.msg != msg || m.stand != modelHeld || m.settling > 0 || m.either || r.seeking || r.closed {
		r.mu.Unlock()
		return
	}
	r.count++
	chance := rand.New(rand.NewPCG(r.cfg.base(), uint64(5_000_000+r.count))).IntN(100)
	switch {
	case r.w.calm.Load(), r.count%r.cfg.UpTo > 0 && chance < 50:
		r.mu.Unlock()
	case chance < 10 && !r.cfg.Faultless:
		r.mu.Unlock()
		r.nackNow(m)
	case r.count%r.cfg.UpTo == 0:
		r.ackUpTo(m, msg, entries, chance%2 == 0)
	default:
		r.mu.Unlock()
	}
}

// ackUpTo acknowledges cumulatively up to m. If the application never had one of the earlier messages, ackUpTo
// acknowledges nothing, because that message would be lost. The caller holds r.mu; ackUpTo unlocks it.
func (r *modelRun) ackUpTo(m *modelExpected, msg pulsar.Message, entries []*modelEntry, byID bool) {
	const how = "a cumulative acknowledgement at delivery"
	upTo, never := r.upToIn(m, entries)
	if never != "" {
		if r.cfg.ordered() {
			r.w.fail("%v is LOST: it was never handed out, and %v is acknowledged cumulatively", never, m)
		}
		r.mu.Unlock()
		return
	}
	r.begin(upTo...)
	r.mu.Unlock()
	defer r.done()
	r.w.note("AckCumulative of %v", m)
	var err error
	if byID {
		err = r.c.AckIDCumulative(msg.ID())
	} else {
		err = r.c.AckCumulative(msg)
	}
	r.allowed(how, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range upTo {
		r.ended(m, how, err)
	}
}

// entriesTo returns the entries of e's topic up to e.
func (r *modelRun) entriesTo(e *modelEntry) []*modelEntry {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	return e.sub.entries[:e.pos+1]
}

// upToIn returns the messages in entries up to m. If the application never had one of them, it returns none, and the
// name of that message in never. The caller holds r.mu.
func (r *modelRun) upToIn(m *modelExpected, entries []*modelEntry) (upTo []*modelExpected, never string) {
	for _, e := range entries {
		for i := range e.size {
			if e == m.entry && i > int(m.key.index) {
				break
			}
			if known := r.known[keyOf(e, i)]; known != nil && known.stand != modelFresh && !known.either {
				upTo = append(upTo, known)
			} else if !e.skipped && !e.otherDid {
				return nil, fmt.Sprintf("%v.%d", e, i)
			}
		}
	}
	return upTo, ""
}
