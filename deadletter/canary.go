package deadletter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// canary watches the first letters of a replay. A consumer that fails on one of them publishes a copy with the same
// REPLAY_RUN to the retry topic or the dead letter topic, and only then acknowledges the letter. So the canary is
// processed when every message of this run is acknowledged and none is in the dead letter topic.
type canary struct {
	tails   map[string]*tail             // readers of all partitions that may have messages of the run
	open    map[string]map[position]bool // by partition, messages of the run that are not acknowledged yet
	origins map[string]bool              // subscriptions that have to acknowledge the messages
	seen    int                          // how many letters of the canary, and copies of them, were read
}

func newCanary(seen int) *canary {
	return &canary{map[string]*tail{}, map[string]map[position]bool{}, map[string]bool{}, seen}
}

// watchAgain watches the partitions that the interrupted replay watched. Messages of the canary that are no longer
// stored were acknowledged.
func (r *replay) watchAgain(ctx context.Context) error {
	if r.o.Canary == 0 || r.j.sound || len(r.j.tails) == 0 {
		return nil
	}
	r.sent, r.canary = r.j.sent, newCanary(r.j.sent)
	for partition, at := range r.j.tails {
		if _, err := r.t.subscriptions(ctx, partition); errors.Is(err, ErrNoTopic) { // a reader would create the topic
			continue
		}
		from := pulsar.EarliestMessageID()
		if at.Entry >= 0 {
			from = pulsar.NewMessageID(at.Ledger, at.Entry, at.Index, 0)
		}
		tail, err := r.t.tail(ctx, partition, from, queueSize)
		if err != nil {
			return err
		}
		tail.at, r.canary.tails[partition] = at, tail
	}
	return nil
}

// watch begins to read the topics that the canary letter l and its copies may go to. The journal gets the position in
// each partition at which watch begins.
func (r *replay) watch(ctx context.Context, topic string, l *Letter) error {
	if r.canary == nil {
		r.canary = newCanary(0)
	}
	c, begun := r.canary, map[string]position{}
	names := []string{r.t.o.Topic, r.t.retryTopic(), topic}
	own := ReplayOptions{Namespaces: r.o.Namespaces}
	if retry, left := r.t.back(&own, l, &Report{}); left == "" && !slices.Contains(names, retry) {
		// l has a retry topic of its own if services share the dead letter topic, or if that is in another namespace
		names = append(names, retry)
	}
	for _, name := range names {
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
			tail, err := r.t.tail(ctx, partition, pulsar.LatestMessageID(), queueSize)
			if err != nil {
				return err
			}
			c.tails[partition] = tail
			tail.at, err = tail.last(ctx)
			if err != nil {
				return err
			}
			begun[partition] = tail.at
		}
	}
	if len(begun) > 0 {
		r.j.enqueue(record{Tails: begun})
	}
	return nil
}

func (r *replay) closeCanary() {
	if r.canary != nil {
		for _, tail := range r.canary.tails {
			tail.close()
		}
	}
}

// awaitCanary waits until the canary is processed, or has died again, and notes the outcome.
func (r *replay) awaitCanary(ctx context.Context) error {
	if err := r.j.append(ctx, record{Sent: r.sent}); err != nil {
		return err
	}
	switch err := r.checkCanary(ctx); {
	case err == nil:
		return r.j.append(ctx, record{Sound: true})
	case errors.Is(err, ErrPoison):
		return errors.Join(err, r.j.append(ctx, record{Dead: true}))
	default:
		return err
	}
}

func (r *replay) checkCanary(ctx context.Context) error {
	c, begin := r.canary, time.Now()
	for {
		// acknowledgements are read before copies, since a consumer acknowledges a letter only after its copy is stored
		acks, err := r.acks(ctx)
		if err != nil {
			return err
		}
		for partition, tail := range c.tails {
			dead := topicname.Base(partition) == r.t.o.Topic
			err := tail.drain(ctx, func(msg pulsar.Message) error {
				l := newLetter(r.t.o.Topic, 0, msg)
				switch {
				case l.Properties[PropertyReplayRun] != r.j.run.ID:
				case dead:
					return fmt.Errorf("%w: letter %s came back as %s: %s", ErrPoison, r.nameOf(l), l.ID,
						strings.TrimPrefix(l.Type+": "+l.Reason, ": "))
				default:
					c.origins[l.Subscription] = true
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
		r.report.Waiting, r.report.WaitsFor = 0, ""
		for partition, open := range c.open {
			name := ""
			for p := range open {
				all := acks[partition]
				if i := slices.IndexFunc(all, func(a cursor) bool { return !a.includes(p) }); i >= 0 {
					name = all[i].name
				} else if len(all) > 0 {
					delete(open, p)
				}
			}
			r.report.Waiting += len(open)
			if len(open) > 0 {
				r.report.WaitsFor = r.t.describeSubscription(ctx, partition, name)
			}
		}
		if r.report.Waiting == 0 && c.seen+int(r.dropped.Load()) >= r.sent {
			return nil
		}
		if time.Since(begin) >= r.o.CanaryTimeout {
			return fmt.Errorf("%w within %v: %d messages wait for %s", ErrUnprocessed, r.o.CanaryTimeout,
				r.report.Waiting, r.report.WaitsFor)
		}
		if r.o.Progress != nil {
			r.o.Progress(r.report.clone())
		}
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}

// nameOf returns the ID of the canary letter that came back as l. l.OriginID is the ID of the original message, or of
// the message that the replay published. If another process sent the canary, nameOf can only return l.OriginID.
func (r *replay) nameOf(l *Letter) string {
	ids := []string{l.OriginID}
	if parts := strings.Split(l.OriginID, ":"); len(parts) > 2 {
		ids = append(ids, parts[0]+":"+parts[1])
	}
	for _, id := range ids {
		if name, ok := r.names.Load(id); ok {
			return name.(string)
		}
	}
	return "of message " + l.OriginID
}

// describeSubscription names the subscription that must acknowledge messages of a partition, with its number of
// consumers.
func (t *Topic) describeSubscription(ctx context.Context, partition, subscription string) string {
	topic := topicname.Base(partition)
	who := fmt.Sprintf("subscription %s of %s", subscription, topic)
	if subscription == "" {
		who = "a subscription of " + topic
	}
	switch n, ok := t.consumers(ctx, topic)[subscription]; {
	case !ok:
		return who
	case n == 0:
		return who + ", which has no consumer"
	case n == 1:
		return who + ", which has 1 consumer"
	default:
		return fmt.Sprintf("%s, which has %d consumers", who, n)
	}
}

// cursor has the entries that a subscription has acknowledged.
type cursor struct {
	name string
	*acknowledged
}

// acks returns the acknowledgements of each partition. It takes those of the subscriptions in canary.origins or, if the
// partition has none of these subscriptions, those of all its subscriptions.
func (r *replay) acks(ctx context.Context) (map[string][]cursor, error) {
	acks := map[string][]cursor{}
	for partition, open := range r.canary.open {
		if len(open) == 0 {
			continue
		}
		names, err := r.t.subscriptions(ctx, partition)
		if err != nil {
			return nil, err
		}
		if some := slices.DeleteFunc(slices.Clone(names),
			func(n string) bool { return !r.canary.origins[n] }); len(some) > 0 {
			names = some
		}
		for _, name := range names {
			a, err := r.t.acknowledged(ctx, partition, name)
			if err != nil {
				return nil, err
			}
			acks[partition] = append(acks[partition], cursor{name, a})
		}
	}
	return acks, nil
}
