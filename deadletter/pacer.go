package deadletter

import (
	"math"
	"time"
)

// catchUp is the longest delay that a pacer makes up for. Delays come from late timers and from acknowledgements.
const catchUp = 100 * time.Millisecond

// pacer spreads letters evenly over time.
type pacer struct {
	every time.Duration // 0 for no limit
	next  time.Time     // when the next letter may go
}

func newPacer(rate float64) pacer {
	if rate <= 0 {
		return pacer{}
	}
	return pacer{time.Duration(min(float64(time.Second)/rate, math.MaxInt64/2)), time.Now()}
}

// wait returns how long the next letter must wait.
func (p *pacer) wait() time.Duration { return time.Until(p.next) }

// took notes that a letter is being published.
func (p *pacer) took() {
	if p.every == 0 {
		return
	}
	if earliest := time.Now().Add(-catchUp); p.next.Before(earliest) {
		p.next = earliest
		if p.every > catchUp {
			p.next = time.Now()
		}
	}
	p.next = p.next.Add(p.every)
}
