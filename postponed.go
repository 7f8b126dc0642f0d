package redelivery

import (
	"reflect"
	"slices"
	"sync"

	"github.com/apache/pulsar-client-go/pulsar"
)

// postponed are calls of interceptors about messages, which are put off until these are settled.
type postponed struct {
	mu      sync.Mutex
	calls   map[place]*calls
	chunked []*calls // of messages in chunks: upstream tells of each chunk, by an id that nobody else knows
}

// place is where a message is.
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
func (p *postponed) begin(id pulsar.MessageID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := placeOf(id)
	if p.calls == nil {
		p.calls = map[place]*calls{}
	}
	if p.calls[at] == nil {
		p.calls[at] = &calls{}
	}
	p.calls[at].settlings++
	if reflect.TypeOf(id).String() == "*pulsar.chunkMessageID" {
		p.chunked = append(p.chunked, p.calls[at])
	}
}

// end returns what was put off, unless that is for another to do.
func (p *postponed) end(id pulsar.MessageID) (todo []func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := placeOf(id)
	c := p.calls[at]
	if c.settlings--; c.settlings > 0 {
		return nil
	}
	delete(p.calls, at)
	p.chunked = slices.DeleteFunc(p.chunked, func(other *calls) bool { return other == c })
	return c.todo
}

// add puts a call off, and reports whether there is somebody to wait for.
func (p *postponed) add(id pulsar.MessageID, call func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.calls[placeOf(id)]
	if n := len(p.chunked); c == nil && n > 0 {
		c = p.chunked[n-1]
	}
	if c != nil {
		c.todo = append(c.todo, call)
	}
	return c != nil
}
