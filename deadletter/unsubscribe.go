package deadletter

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Unsubscribe removes Options.Subscription, which then keeps no letters: the broker deletes those that no other subscription has to get,
// and all that come later if there is no other. An unfinished replay is given up. On a topic whose name does not end in -DLQ only the
// default subscription can be removed, or with Options.AnyTopic. Without an admin API it is no error if there is no such subscription.
func (t *Topic) Unsubscribe(ctx context.Context) error {
	if !t.o.AnyTopic && t.o.Subscription != defaultSubscription && !strings.HasSuffix(t.o.Topic, pulsar.DlqTopicSuffix) {
		return fmt.Errorf("%w: the name of %s does not end in %s, and %s may be a service's", ErrNotDeadLetters, t.o.Topic, pulsar.DlqTopicSuffix, t.o.Subscription)
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
