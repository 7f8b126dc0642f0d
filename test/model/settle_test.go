package model

import (
	"errors"
	"slices"

	"github.com/apache/pulsar-client-go/pulsar"
)

func (r *modelRun) ack(m *modelExpected, msg pulsar.Message, how string) {
	defer r.done()
	err := r.c.Ack(msg)
	r.allowed(how, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended(m, how, err)
}

func (r *modelRun) ackList() {
	all := r.all(func(m *modelExpected) bool {
		return m.settling == 0 && (m.stand == modelHeld || m.msg != nil && m.key.entry%5 == 0)
	})
	r.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = all[:min(len(all), 1+r.rng.IntN(6))]
	ids := make([]pulsar.MessageID, len(all))
	for i, m := range all {
		ids[i] = r.some(m).ID()
	}
	r.call(func() {
		defer r.done()
		err := r.c.AckIDList(ids)
		var some pulsar.AckError
		if errors.As(err, &some) {
			for id, err := range some {
				if r.allowed("AckIDList", err); !slices.Contains(ids, id) {
					r.w.fail("AckIDList has an error for %v, which was not in the list", id)
				}
			}
		} else {
			r.allowed("AckIDList", err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for i, m := range all {
			err := err
			if some != nil {
				err = some[ids[i]]
			}
			r.ended(m, "AckIDList", err)
		}
	}, all...)
}

// ackCumulative acknowledges up to a message. If the application never had one of the earlier messages, ackCumulative
// does nothing.
func (r *modelRun) ackCumulative() {
	settled := r.rng.IntN(3) == 0
	m := r.one(r.all(func(m *modelExpected) bool { return m.msg != nil && (m.stand == modelSettled) == settled }))
	if m == nil {
		return
	}
	how := "a cumulative acknowledgement"
	if settled {
		how = "a cumulative acknowledgement of a settled message"
	}
	entries := r.entriesTo(m.entry)
	r.mu.Lock()
	upTo, never := r.upToIn(m, entries)
	r.mu.Unlock()
	if never != "" {
		return
	}
	msg := r.some(m)
	r.call(func() {
		defer r.done()
		r.w.note("AckCumulative of %v", m)
		err := r.c.AckCumulative(msg)
		r.allowed(how, err)
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, m := range upTo {
			r.ended(m, how, err)
		}
	}, upTo...)
}
