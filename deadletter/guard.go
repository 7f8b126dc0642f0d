package deadletter

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// guardLetters limits how many messages of a topic guard reads in order to find a dead letter.
const guardLetters = 100

// guard refuses a topic that is not for dead letters, before anything is created. On such a topic the subscription of a
// replay or a purge would make the broker keep every later message. If the admin API says that this subscription does
// not exist yet, guard returns its name. Another call may create the subscription at any time.
func (t *Topic) guard(ctx context.Context) (creates string, err error) {
	names, err := t.subscriptions(ctx, t.o.Topic)
	if err != nil {
		return "", err
	}
	exists := slices.Contains(names, t.o.Subscription)
	if !exists && t.o.Admin.URL != "" {
		creates = t.o.Subscription
	}
	if t.o.AnyTopic || strings.HasSuffix(t.o.Topic, pulsar.DlqTopicSuffix) {
		return creates, nil
	}
	if strings.HasSuffix(t.o.Topic, pulsar.RetryTopicSuffix) { // retries have the properties of an origin, too
		return "", fmt.Errorf("%w: %s is a retry topic", ErrNotDeadLetters, t.o.Topic)
	}
	seen := 0
	for l, err := range t.Peek(ctx, guardLetters) {
		if err != nil {
			return "", err
		}
		if l.isDead() {
			return creates, nil
		}
		seen++
	}
	what := fmt.Sprintf("none of its first %d messages says", seen)
	switch {
	case seen == 0 && exists: // all letters were replayed or purged, so there is nothing to do
		return "", nil
	case seen == 0:
		what = "no message of it says"
	case seen == 1:
		what = "its first message does not say"
	}
	return "", fmt.Errorf("%w: the name of %s does not end in %s, and %s where it came from or why it died",
		ErrNotDeadLetters, t.o.Topic, pulsar.DlqTopicSuffix, what)
}

// isDead reports whether a message has properties of a dead letter. On a replayed message the properties of its origin
// prove nothing, since such a message keeps them in any topic.
func (l *Letter) isDead() bool {
	if l.Type != "" || l.Reason != "" || l.Properties[reconsume.PropertyDeadLetterTime] != "" {
		return true
	}
	return (l.Origin != "" || l.OriginID != "") && l.Properties[PropertyReplayRun] == ""
}
