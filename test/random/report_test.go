package random

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// report fails the test if the run has violated a promise.
func (r *randomRun) report() {
	r.mu.Lock()
	defer r.mu.Unlock()
	early := len(r.wrong) > 0 && !r.complete
	for n, f := range r.fates {
		if early { // the run ended early
			break
		}
		if !f.isOver() {
			r.faultLocked("message %d is neither settled nor a dead letter: %v", n, f)
		} else if text := f.checkDeadLetters(r.randomConfig); text != "" {
			r.faultLocked("message %d %s: %v", n, text, f)
		}
	}
	if len(r.wrong) == 0 {
		return
	}
	r.t.Errorf("-random.seed %d: %+v\n%s", r.Seed, *r.randomConfig, strings.Join(r.wrong[:min(12, len(r.wrong))], "\n"))
	if r.Observed {
		r.t.Log(strings.Join(r.trace, "\n"))
	}
}

func (r *randomRun) isWrong() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.wrong) > 0
}

func (r *randomRun) fault(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faultLocked(format, args...)
}

func (r *randomRun) faultLocked(format string, args ...any) {
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

// note adds an event of a consumer to the trace.
func (r *randomRun) note(k int, what string, msg pulsar.Message, id pulsar.MessageID) {
	n := ""
	if msg != nil {
		n = testkit.Name(msg)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trace = append(r.trace, fmt.Sprintf("%v %d %s: %s %v", time.Now().Format("05.000"), k, what, n, id))
}

// countDeadLetters counts the dead letters of each message.
func (r *randomRun) countDeadLetters(ctx context.Context, c pulsar.Consumer) {
	for {
		msg, err := c.Receive(ctx)
		if err != nil {
			return
		}
		n := r.number(msg, "as a dead letter")
		r.checkOrigin(n, msg)
		r.mu.Lock()
		r.fates[n].letters++
		r.mu.Unlock()
	}
}
