package driver

import (
	"sync"

	"github.com/apache/pulsar-client-go/pulsar"
)

// postponed are calls about messages that are put off until these are settled.
type postponed struct {
	mu    sync.Mutex
	calls map[place]*calls
}

// place is where a message is. Upstream tells of a message in chunks by ids of its own, of which the last has its place.
type place struct {
	ledger, entry int64
	index         int32
}

type calls struct {
	settlings int // of several topics with the same ids
	todo      []func()
}

func placeOf(id pulsar.MessageID) place {
	return place{id.LedgerID(), id.EntryID(), max(0, id.BatchIdx())}
}

// begin puts off what is told of a message. end must follow.
func (p *postponed) begin(at place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls == nil {
		p.calls = map[place]*calls{}
	}
	if p.calls[at] == nil {
		p.calls[at] = &calls{}
	}
	p.calls[at].settlings++
}

// end returns what was put off, unless that is for another to do.
func (p *postponed) end(at place) (todo []func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.calls[at]
	if c.settlings--; c.settlings > 0 {
		return nil
	}
	delete(p.calls, at)
	return c.todo
}

// add puts a call off, and reports whether there is somebody to wait for.
func (p *postponed) add(at place, call func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.calls[at]
	if c != nil {
		c.todo = append(c.todo, call)
	}
	return c != nil
}
