package worker

import (
	"sync"
	"time"
)

const (
	repeatTime = time.Minute // between two lines about one kind
	maxRepeats = 100         // kinds that are counted; all other kinds together count as one kind
)

// repeats keeps frequent events from flooding the log: the first event of a kind is logged, and then once a minute the
// number of further ones.
type repeats struct {
	mu    sync.Mutex
	kinds map[string]*repeat
	other func(more int) // logs how many events of other kinds there were
	over  bool           // end was called: every event is logged, since nothing would log the numbers
}

// repeat is a kind of event that was logged in the last minute.
type repeat struct {
	more  int // events since the last line
	log   func(more int)
	timer *time.Timer
}

// first reports whether an event is the first of its kind; then the caller logs it. log, which may be nil, is called
// once a minute with the number of further events.
func (r *repeats) first(kind string, log func(more int)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return true
	}
	if r.kinds[kind] == nil && len(r.kinds) >= maxRepeats {
		kind, log = "", r.other
	}
	if k := r.kinds[kind]; k != nil {
		k.more++
		return false
	}
	if r.kinds == nil {
		r.kinds = map[string]*repeat{}
	}
	r.kinds[kind] = &repeat{log: log, timer: time.AfterFunc(repeatTime, func() { r.minuteOver(kind) })}
	return true
}

// minuteOver logs how many events of a kind came in the last minute. If there was none, the next event counts as the
// first again.
func (r *repeats) minuteOver(kind string) {
	r.mu.Lock()
	k := r.kinds[kind]
	if k == nil { // end was called
		r.mu.Unlock()
		return
	}
	more := k.more
	k.more = 0
	if more == 0 {
		delete(r.kinds, kind)
	} else {
		k.timer.Reset(repeatTime)
	}
	r.mu.Unlock()
	k.logMore(more)
}

// end logs the numbers that were not logged yet, at the end of Run.
func (r *repeats) end() {
	r.mu.Lock()
	kinds := r.kinds
	r.kinds, r.over = nil, true
	r.mu.Unlock()
	for _, k := range kinds {
		k.timer.Stop()
		k.logMore(k.more)
	}
}

func (k *repeat) logMore(more int) {
	if more > 0 && k.log != nil {
		k.log(more)
	}
}
