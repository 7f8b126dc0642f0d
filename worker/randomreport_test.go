package worker_test

import (
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// watch checks that handlers are called as long as there are messages, and that Stats are within their limits.
func (r *randomRun) watch(ctx context.Context) {
	limit := max(r.MemoryLimit, 1<<20) // room for messages that are about to be published
	if !r.Letters() {
		limit = r.MemoryLimit
	}
	for ; ctx.Err() == nil && !r.Failed(); time.Sleep(ms(20)) {
		r.mu.Lock()
		quiet, all := time.Since(r.last), r.all
		r.mu.Unlock()
		for _, e := range all {
			if c, w := e.c.Stats(), e.w.Stats(); c.BufferedBytes < 0 || c.BufferedBytes > limit || c.Waiting < 0 || w.InFlight < 0 || w.Waiting < 0 || w.Stuck > r.Hang {
				r.fault("Stats outside of their limits: Worker %d has %+v, its Consumer %+v, with a memory limit of %d",
					e.k, w, c, limit)
			}
		}
		if quiet > 20*time.Second && r.pending() != "" {
			r.fault("no handler was called for %v: %s", quiet, r.pending())
		}
	}
}

// pending names some messages that are not settled; "" if all are.
func (r *randomRun) pending() (text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.fates {
		if !f.isOver() && len(text) < 5000 {
			text += fmt.Sprintf("\n%v", f)
		}
	}
	return text
}

// unrest describes what is left to do although all messages are settled; "" if nothing is.
func (r *randomRun) unrest(present []*member) string {
	for _, e := range present {
		w, c := e.w.Stats(), e.c.Stats()
		// The Consumer forgets messages of other consumers later: docs/reliability.md, "A message that another consumer
		// has, or has acknowledged".
		if w.InFlight > 0 || w.Waiting > 0 || r.Single() && (c.Waiting > 0 || c.BufferedBytes > 0) {
			return fmt.Sprintf("Worker %d has %+v, its Consumer %+v, and the broker a backlog of %d", e.k, w, c, r.unacked())
		}
	}
	if n := r.unacked(); n > 0 {
		return fmt.Sprintf("the broker has a backlog of %d", n)
	}
	return ""
}

// unacked returns the backlog of the subscription.
func (r *randomRun) unacked() (n int) {
	for i, topic := range r.topics {
		if r.Partitions == 0 {
			n += r.backlogOf(topic)
		}
		for p := range r.Partitions {
			n += r.backlogOf(fmt.Sprintf("%s-partition-%d", topic, p))
		}
		if r.Retry && i == 0 {
			n += r.backlogOf(topic + "-sub-RETRY")
		}
	}
	return n
}

func (r *randomRun) within(d time.Duration, reached func() bool) bool {
	for begin := time.Now(); time.Since(begin) < d && !r.Failed(); time.Sleep(ms(20)) {
		if reached() {
			return true
		}
	}
	return r.Failed()
}

// countLetters counts the dead letters of each message.
func (r *randomRun) countLetters(ctx context.Context, c pulsar.Consumer) {
	for {
		msg, err := c.Receive(ctx)
		if err != nil {
			return
		}
		r.mu.Lock()
		f := r.fateOf(msg)
		f.letters++
		f.note("a dead letter, because %s", msg.Properties()["EXCEPTION_MESSAGE"])
		if r.Exact() && (f.letters > 1 || f.succeeded) {
			r.fault("more than one dead letter, or a dead letter although the message succeeded: %v", f)
		}
		r.mu.Unlock()
	}
}

// fateOf returns the fate of a message. The caller holds mu.
func (r *randomRun) fateOf(msg pulsar.Message) *fate {
	var n int
	_, err := fmt.Sscan(string(msg.Payload()), &n)
	if err != nil || n >= len(r.fates) {
		r.fault("a message has the payload %.40q, which was never published", msg.Payload())
		n = 0
	}
	return r.fates[n]
}

// fault reports the first fault.
func (r *randomRun) fault(format string, args ...any) {
	if r.Failed() {
		return
	}
	r.Errorf("-random.seed %d: %+v\n%s", r.Seed, *r.randomConfig, fmt.Sprintf(format, args...))
	var stacks strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
	r.Logf("%s\n%s", &r.log, &stacks)
}
