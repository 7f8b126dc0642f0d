package simulate

import "github.com/pulsar-redelivery/redelivery/internal/outages"

// downtime is the state of an instance in an outage; see worker/outage.go.
type downtime struct {
	outage outages.Outage[*message]
	era    int  // number of outages that began
	aside  fifo // messages that are kept, but not tried now
	away   bool // all messages are given back until the pause is over

	looks       int  // how many more messages to put aside before one of them is tried
	moreMayCome bool // more messages may come soon, so the try waits for them
}

// report records whether a handler failed, and returns whether its message stays in the instance.
func (i *instance) report(m *message, failed, probe bool) (keep bool) {
	if i.Window == 0 {
		return false
	}
	began := !i.isDown()
	result := outages.Succeeded
	if failed {
		result = outages.Failed
	}
	i.outage.Report(outages.Attempt[*message]{Message: m, Result: result, Before: m.kept || m.count > 0, Probe: probe})
	switch {
	case !i.isDown():
		i.looks = 0
		return false
	case began:
		i.era++
		i.scheduleTry()
	case probe:
		i.scheduleTry()
	}
	return failed && i.outage.Keeps(m)
}

// isDown reports whether the instance has noticed an outage.
func (i *instance) isDown() bool { return i.outage.State() != outages.Closed }

// scheduleTry begins the pause before the next try.
func (i *instance) scheduleTry() {
	i.looks = 0
	pause := i.outage.Wait(i.bounded(i.Pause.Next(i.outage.Tries())))
	i.push(event{at: i.now + pause, kind: pauseEnds, of: i.number, era: i.era})
}

// giveBack gives all messages back to the broker if no handler runs and the pause is not short; see worker/giveback.go.
func (i *instance) giveBack() {
	if !i.isDown() || i.idle < i.Concurrency || i.looks > 0 || i.outage.Pause() < outages.ShortPause {
		return
	}
	for m := range i.waits {
		i.waiting--
		i.remember(m)
		i.replay.push(m)
	}
	for _, kept := range []fifo{i.queue, i.ready, i.aside} {
		for m := kept.pop(); m != nil; m = kept.pop() {
			m.kept = false
			i.replay.push(m)
		}
	}
	clear(i.waits)
	i.queue, i.ready, i.aside = fifo{}, fifo{}, fifo{}
	i.away = true
	i.addUnacked(-i.unacked)
	i.replay.sort()
	i.work += i.replay.len()
}

// beginTry lets the broker send messages to the instance again.
func (i *instance) beginTry(era int) {
	if era == i.era && i.isDown() {
		i.away, i.moreMayCome, i.looks = false, true, i.outage.Looks()
		i.outage.Try()
		i.push(event{at: i.now + request, kind: waitEnds, of: i.number, era: era})
	}
}

// endWait ends the wait for more messages, and tries one of those that came.
func (i *instance) endWait(era int) {
	if era == i.era && i.isDown() {
		i.moreMayCome = false
		i.look()
	}
}

// look puts messages aside. It tries one of them when enough are aside, or when no more are coming.
func (i *instance) look() {
	if i.looks == 0 || i.idle == 0 {
		return
	}
	for i.looks > 0 && i.aside.len() < outages.Most {
		m := i.next()
		if m == nil {
			break
		}
		if i.timesProbed(m) < 0 {
			i.looks--
		}
		i.aside.push(m)
	}
	if i.aside.len() == 0 || i.looks > 0 && i.moreMayCome && i.aside.len() < outages.Most {
		return
	}
	i.looks = 0
	i.handle(i.aside.take(outages.Next(i.aside.all[i.aside.head:], i.timesProbed)), probeFails)
}

// timesProbed returns how often a message failed as a probe, or -1 if it did not fail before.
func (i *instance) timesProbed(m *message) int {
	return i.outage.Probes(m, m.kept || m.count > 0)
}
