package deadletter

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// canary is the first letters of a replay, and what became of them. A consumer that fails on one publishes a copy to the retry topic or
// the dead letter topic before it acknowledges, and the copy keeps REPLAY_RUN; so when everything with that property is
// acknowledged, and nothing is in the dead letter topic, all have been processed.
type canary struct {
	tails   map[string]*tail // of every partition that a copy can be in
	dead    map[string]bool  // those of the dead letter topic
	open    map[string]map[position]bool
	origins map[string]bool // subscriptions that have to acknowledge
	seen    int
}

// watch begins to look where copies of l will be.
func (r *replay) watch(ctx context.Context, topic string, l *Letter) error {
	if r.canary == nil {
		r.canary = &canary{map[string]*tail{}, map[string]bool{}, map[string]map[position]bool{}, map[string]bool{}, 0}
	}
	c := r.canary
	if l.Subscription != "" {
		c.origins[l.Subscription] = true
	}
	base, _ := strings.CutSuffix(r.t.o.Topic, pulsar.DlqTopicSuffix)
	for _, name := range []string{r.t.o.Topic, base + pulsar.RetryTopicSuffix, topic} {
		partitions, err := r.t.partitions(ctx, name)
		if err != nil {
			if name == topic {
				return err
			}
			continue // no retry topic
		}
		for _, partition := range partitions {
			if c.tails[partition] != nil {
				continue
			}
			tail, err := r.t.tail(ctx, partition, pulsar.LatestMessageID())
			if err != nil {
				return err
			}
			c.tails[partition], c.dead[partition] = tail, name == r.t.o.Topic
			if tail.at, err = tail.last(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *replay) closeCanary() {
	if r.canary != nil {
		for _, tail := range r.canary.tails {
			tail.reader.Close()
		}
	}
}

// sing waits until the canary is processed, or dead again.
func (r *replay) sing(ctx context.Context) error {
	c := r.canary
	for {
		// What is acknowledged now has its copies by now.
		acks, err := r.acks(ctx)
		if err != nil {
			return err
		}
		for partition, tail := range c.tails {
			err := tail.drain(ctx, func(msg pulsar.Message) error {
				switch {
				case msg.Properties()[PropertyReplayRun] != r.j.run.ID:
				case c.dead[partition]:
					l := newLetter(r.t.o.Topic, 0, msg)
					return fmt.Errorf("%w: letter %s came back as %s: %s", ErrPoison, l.OriginID, l.ID, strings.TrimPrefix(l.Type+": "+l.Reason, ": "))
				default:
					if c.open[partition] == nil {
						c.open[partition] = map[position]bool{}
					}
					c.open[partition][positionOf(msg.ID()).entry()] = true
					c.seen++
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		r.report.Waiting = 0
		for partition, open := range c.open {
			for p := range open {
				if all := acks[partition]; len(all) > 0 && !slices.ContainsFunc(all, func(a *acknowledged) bool { return !a.has(p) }) {
					delete(open, p)
				}
			}
			r.report.Waiting += len(open)
		}
		if r.report.Waiting == 0 && c.seen+int(r.dropped.Load()) >= r.sent {
			return nil
		}
		if r.o.Progress != nil {
			r.o.Progress(r.report)
		}
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}

// acks are what the subscriptions have acknowledged that the letters died on, or all if none of these is there.
func (r *replay) acks(ctx context.Context) (map[string][]*acknowledged, error) {
	acks := map[string][]*acknowledged{}
	for partition, open := range r.canary.open {
		if len(open) == 0 {
			continue
		}
		names, err := r.t.subscriptions(ctx, partition)
		if err != nil {
			return nil, err
		}
		if some := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !r.canary.origins[n] }); len(some) > 0 {
			names = some
		}
		for _, name := range names {
			a, err := r.t.acknowledged(ctx, partition, name)
			if err != nil {
				return nil, err
			}
			acks[partition] = append(acks[partition], a)
		}
	}
	return acks, nil
}
