package simulate

import "github.com/pulsar-redelivery/redelivery/internal/outages"

// downtime is what an instance knows of an outage, see worker/outage.go.
type downtime struct {
	outage outages.Outage[*message]
	era    int  // outages until now
	aside  fifo // kept and not tried at present
	away   bool // all is given back, until the pause is over

	looks   int  // at how many more messages, to try the last of them
	patient bool // more may come at once
}

// report notes how a handler did, and reports whether its message stays here.
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
		i.nextTry()
	case probe:
		i.nextTry()
	}
	return failed && i.outage.Keeps(m)
}

// isDown reports whether there is an outage, as far as the instance knows.
func (i *instance) isDown() bool { return i.outage.State() != outages.Closed }

// nextTry begins the pause before the next try.
func (i *instance) nextTry() {
	i.looks = 0
	pause := i.outage.Wait(i.bounded(i.Pause.Next(i.outage.Tries())))
	i.push(event{at: i.now + pause, kind: probes, of: i.number, era: i.era})
}

// rest gives everything back to the broker if no handler is at work and the pause is not short, see worker/giveback.go.
func (i *instance) rest() {
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
	i.has(-i.unacked)
	i.replay.sort()
	i.work += i.replay.len()
}

// probe begins a try: the instance is there again, and is sent messages.
func (i *instance) probe(era int) {
	if era == i.era && i.isDown() {
		i.away, i.patient, i.looks = false, true, i.outage.Looks()
		i.outage.Try()
		i.push(event{at: i.now + request, kind: looked, of: i.number, era: era})
	}
}

// looked ends the wait for more messages, if there is one to try.
func (i *instance) looked(era int) {
	if era == i.era && i.isDown() {
		i.patient = false
		i.look()
	}
}

// look puts messages aside, and tries one when there are enough, or no more.
func (i *instance) look() {
	if i.looks == 0 || i.idle == 0 {
		return
	}
	for i.looks > 0 && i.aside.len() < outages.Most {
		m := i.next()
		if m == nil {
			break
		}
		if i.probed(m) < 0 {
			i.looks--
		}
		i.aside.push(m)
	}
	if i.aside.len() == 0 || i.looks > 0 && i.patient && i.aside.len() < outages.Most {
		return
	}
	i.looks = 0
	i.handle(i.aside.take(outages.Next(i.aside.all[i.aside.head:], i.probed)), probed)
}

// probed is how often a message failed when it was tried, or -1 if it did not fail before.
func (i *instance) probed(m *message) int {
	return i.outage.Probes(m, m.kept || m.count > 0)
}
