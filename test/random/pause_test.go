package random

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/pulsar-redelivery/redelivery"
)

// pauses pauses a consumer repeatedly, for less than half of the time. At the end the consumer may be paused.
func (r *randomRun) pauses(ctx context.Context, c *redelivery.Consumer, k int) {
	rng := rand.New(rand.NewPCG(r.base(), 9000+uint64(k)))
	for ctx.Err() == nil {
		time.Sleep(time.Duration(100+rng.IntN(500)) * time.Millisecond)
		c.Pause()
		r.setPaused(k, time.Now())
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		if ctx.Err() != nil && rng.IntN(2) == 0 {
			return
		}
		r.setPaused(k, time.Time{})
		c.Resume()
	}
}

func (r *randomRun) setPaused(k int, since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paused[k] = since
	r.lulls[k].calls = 0
}
