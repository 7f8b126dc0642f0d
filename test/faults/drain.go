package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// stuckError reports that the broker does not send its backlog although it could.
type stuckError struct{ state }

func (e *stuckError) Error() string {
	return fmt.Sprintf("the broker has %v, and sends nothing", e.state)
}

// patience is how long the backlog may stay unchanged. pulsar-client-go waits for up to a minute before it connects
// again.
const patience = 75 * time.Second

// drain waits until the broker has no messages left, and then for messages that might come a second time.
func (t *trial) drain(ctx context.Context) error {
	for _, topic := range t.drained() {
		last, since := state{}, time.Now()
		for {
			s, ok := t.broker.state(ctx, topic)
			if ok && s.backlog == 0 {
				break
			}
			if last.out != s.out || !s.isStuck() {
				last, since = s, time.Now()
			} else if time.Since(since) > patience {
				return &stuckError{s}
			}
			t.show("waiting for the rest: %v", t.progress())
			if sleep(ctx, 100*time.Millisecond); ctx.Err() != nil {
				return fmt.Errorf("the broker has %v of %s: %w; %v; %s", s, topic, context.Cause(ctx), t.progress(),
					t.stats())
			}
		}
	}
	sleep(ctx, time.Second)
	return nil
}

// drained returns the topics that must be empty at the end.
func (t *trial) drained() []string {
	topics := t.work.topics()
	if t.work.Reconsume {
		topics = append(topics, t.work.Topic+"-"+subscription+pulsar.RetryTopicSuffix)
	}
	if t.work.MaxDeliveries > 0 {
		topics = append(topics, t.work.letterTopic())
	}
	return topics
}

// isOver reports whether the broker has no messages left.
func (t *trial) isOver(ctx context.Context) bool {
	return !slices.ContainsFunc(t.drained(), func(topic string) bool {
		s, ok := t.broker.state(ctx, topic)
		return !ok || s.backlog > 0
	})
}
