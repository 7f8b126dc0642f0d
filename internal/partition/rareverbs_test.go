package partition

import "slices"

// rareSteps adds the possible steps of verbs that an application uses less often.
func (w *world) rareSteps(add func(event, ...int)) {
	if w.offer != nil {
		add(takeOffer)
		add(withdraw)
	}
	if w.givesBack && len(w.ops) == 0 {
		add(giveBack)
	}
	if w.redelivers && w.g.Stats().Waiting > 0 {
		add(redeliverNow)
	}
	for t, topic := range w.topics {
		if w.expires && slices.ContainsFunc(topic.entries, func(e *brokerEntry) bool { return !e.isAcked() }) {
			add(expire, t)
		}
		for e, messages := range topic.messages {
			hasUnsettled := false
			for i, m := range messages {
				if w.reclaims && m.held && !m.acking && w.find(t, e, i).Stale {
					add(reclaim, t, e, i)
				}
				hasUnsettled = hasUnsettled || m.everHeld && !m.settled
			}
			if w.wholeAcks && hasUnsettled && len(messages) > 1 {
				add(ackWhole, t, e)
			}
		}
	}
}

func (w *world) find(t, e, i int) Info {
	info, _, _ := w.g.Find(w.id(t, e, i), w.topics[t].messages[e][i].hand)
	return info
}

func (w *world) doRare(s step) {
	t, e, i := int(s.topic), int(s.entry), int(s.index)
	switch s.event {
	case takeOffer:
		w.takeOffer()
	case withdraw:
		w.withdraw()
	case reclaim:
		w.g.TakeBackStale(w.now, w.find(t, e, i).Delivery)
		m := w.topics[t].messages[e][i]
		m.held, m.uncounted, m.deadline = false, true, 0
	case giveBack:
		w.giveBack()
	case redeliverNow:
		w.g.RedeliverNow(w.now)
		for _, m := range w.all {
			m.notUntil = 0
		}
	case expire:
		e := slices.IndexFunc(w.topics[t].entries, func(e *brokerEntry) bool { return !e.isAcked() })
		w.take(command{topic: t, entry: e, index: -1})
	case ackWhole:
		w.pipe = append(w.pipe, command{topic: t, entry: e, index: -1})
		_ = w.g.SettleEntry(w.now, ID{topicName(t), w.id(t, e, 0).Ledger, int64(e), -1})
		for _, m := range w.topics[t].messages[e] {
			if !m.settled {
				w.settle(m)
			}
		}
	}
}

// all ranges over the messages of the world.
func (w *world) all(yield func(ID, *appMessage) bool) {
	for t, topic := range w.topics {
		for e, messages := range topic.messages {
			for i, m := range messages {
				if !yield(w.id(t, e, i), m) {
					return
				}
			}
		}
	}
}

// offered returns the message that is offered on the channel.
func (w *world) offered() *appMessage {
	t, e, i := w.at(w.offer.ID)
	return w.topics[t].messages[e][i]
}

// takeOffer takes the message that is offered on the channel.
func (w *world) takeOffer() {
	m := w.offered()
	m.held, m.everHeld, m.offered = true, true, false
	w.g.Taken(w.now, *w.offer)
	if w.timeout > 0 {
		w.g.StartTimeout(w.now, w.offer.ID, w.offer.Hand, w.timeout)
		m.deadline = w.now + w.timeout
	}
	w.offer = nil
}

// withdraw takes back the message that is offered on the channel.
func (w *world) withdraw() {
	m := w.offered()
	m.offered, m.uncounted = false, true
	w.g.PutBack(w.now, *w.offer)
	w.offer = nil
}

// withdrawStale withdraws an offer whose message was settled or forgotten, as Consumer.unlock does.
func (w *world) withdrawStale() {
	if w.offer == nil {
		return
	}
	if i, _, _ := w.g.Find(w.offer.ID, w.offer.Hand); !i.Current {
		w.withdraw()
	}
}

// giveBack closes the consumer at the broker and subscribes again.
func (w *world) giveBack() {
	w.flush()
	w.queue, w.lost = nil, true
	if w.offer != nil {
		w.withdraw()
	}
	for t := range w.topics {
		w.takeBack(t)
	}
	w.g.GiveBack(w.now)
	for _, m := range w.all {
		if m.held && !m.acking && !m.inTxn {
			m.held, m.uncounted, m.deadline = false, true, 0
		}
	}
	w.act(w.g.Advance(w.now))
	w.g.Lost(w.now)
}
