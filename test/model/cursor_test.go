package model

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// redeliver executes a request of our consumer.
func (s *modelSub) redeliver(entries []*modelEntry) {
	s.requests++
	if s.rewinds() {
		if !s.inactive {
			s.rewind("since a message was requested")
		}
		return
	}
	for _, e := range entries {
		if e.owner != ours || e.done {
			continue
		}
		e.owner, e.again, e.why = nobody, true, "since it was requested"
		e.count++
	}
	s.dispatch()
}

func (s *modelSub) disturb() { s.disturbed, s.top = time.Now(), -1 }

// took records that a copy has left the consumer's queue.
func (s *modelSub) took(c *modelCopy) {
	c.entry.taken = c.taken
	if !c.sent.Before(s.disturbed) {
		s.top = max(s.top, c.entry.pos)
	}
}

// rewind makes the broker send all unacknowledged entries again.
func (s *modelSub) rewind(why string) {
	s.disturb()
	s.next = s.low
	for _, e := range s.entries[s.low:] {
		if e.owner != nobody || e.lost != (time.Time{}) {
			e.why = why
		}
	}
	s.dispatch()
}

func (s *modelSub) connect(p *modelPart) {
	s.part, s.permits = p, 0
	s.inactive = s.cfg.Kind == pulsar.Failover && s.other != nil
	if s.rewinds() && !s.inactive {
		s.rewind("since the consumer connected")
	}
}

// disconnect makes all entries of our consumer ownerless.
func (s *modelSub) disconnect() {
	s.part, s.permits = nil, 0
	s.disturb()
	s.takeAway("since the consumer connected")
	if s.other == nil {
		for _, e := range s.entries[s.low:] {
			e.count = 0
		}
	} else if s.cfg.Kind == pulsar.Failover {
		s.inactive = true
		s.next = s.low
	}
	s.dispatch()
}

func (s *modelSub) takeAway(why string) {
	for _, e := range s.entries[s.low:] {
		if e.owner == ours {
			e.owner, e.lost, e.again, e.why = nobody, time.Now(), true, why
		}
	}
}

// join adds another consumer, which becomes the active one on Failover.
func (s *modelSub) join() {
	s.w.note("another consumer joins %v", s.name)
	s.other = &modelOther{}
	if s.cfg.Kind == pulsar.Failover {
		s.takeAway("since the consumer is active again")
		s.disturb()
		s.inactive, s.next = true, s.low
		if s.part != nil {
			s.part.became(false)
		}
	}
	s.dispatch()
}

func (s *modelSub) leave() {
	s.w.note("the other consumer of %v leaves", s.name)
	s.other = nil
	for _, e := range s.entries[s.low:] {
		if e.owner == others {
			e.owner, e.again, e.why = nobody, true, "since another consumer left"
		}
	}
	if s.inactive {
		s.inactive = false
		if s.part != nil {
			s.part.became(true)
		}
		s.rewind("since the consumer is active again")
	}
	s.dispatch()
}

// reset sets the cursor: entries before pos are finished, the others are not. All consumers must be disconnected.
func (s *modelSub) reset(pos int) {
	s.disturb()
	for _, e := range s.entries[:pos] {
		e.skipped = true
		s.finish(e)
	}
	for _, e := range s.entries[pos:] {
		e.modelProgress = modelProgress{acked: make([]bool, e.size), why: "since the cursor was set", most: e.most}
	}
	s.low, s.next, s.other = pos, pos, nil
	s.inactive = false
}

// modelOther is another consumer of the subscription. It acknowledges some entries and gives the others back.
type modelOther struct{ has int }

const modelOtherQueue = 5

func (s *modelSub) give(e *modelEntry) {
	o := s.other
	o.has++
	e.owner, e.otherGot = others, true
	s.w.note("another consumer gets %v", e)
	acks := s.rng.IntN(10) < 7
	s.w.at(time.Now().Add(time.Duration(s.rng.Int64N(int64(3*s.cfg.Pace+10*time.Second)))), s.w.locked(func() {
		if s.other != o || e.owner != others {
			return
		}
		o.has--
		switch {
		case e.done:
		case acks:
			s.w.note("another consumer acknowledges %v", e)
			e.otherDid = true
			s.finish(e)
		case !s.rewinds():
			e.owner, e.again, e.why = nobody, true, "since another consumer left it"
			e.count++
		}
		s.dispatch()
	}))
}
