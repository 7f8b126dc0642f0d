package deadletter

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Unsubscribe removes Options.Subscription, so that it no longer keeps letters. The broker then deletes the letters
// that no other subscription needs, and later letters too if there is no other subscription. An unfinished replay
// cannot be continued. A later Replay or Purge takes all letters that the topic stores, also those that were replayed
// before. If the topic's name does not end in -DLQ, a subscription other than "redelivery" is removed only with
// Options.AnyTopic. Without an admin API a missing subscription is no error.
func (t *Topic) Unsubscribe(ctx context.Context) error {
	if !t.o.AnyTopic && t.o.Subscription != defaultSubscription &&
		!strings.HasSuffix(t.o.Topic, pulsar.DlqTopicSuffix) {
		return fmt.Errorf("%w: the name of %s does not end in %s, and subscription %s may be a service's",
			ErrNotDeadLetters, t.o.Topic, pulsar.DlqTopicSuffix, t.o.Subscription)
	}
	names, err := t.subscriptions(ctx, t.o.Topic)
	if err != nil {
		return err
	}
	if t.o.Admin.URL != "" && !slices.Contains(names, t.o.Subscription) {
		return fmt.Errorf("%w: %s has no subscription %s", ErrNotSubscribed, t.o.Topic, t.o.Subscription)
	}
	j, err := t.openJournal(ctx)
	if err != nil {
		return err
	}
	defer j.close()
	if err := t.unsubscribe(ctx); err != nil {
		return err
	}
	return j.remove(ctx)
}
