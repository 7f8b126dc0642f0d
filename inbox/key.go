package inbox

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// Key returns a text that identifies a message over redeliveries, retries and replays: the topic and the id under which it was first
// published. It suits as the idempotency key of a call that no transaction covers, such as an HTTP request.
//
// Properties name the first message of a retry. Key believes them of a message in the default retry topic of the subscription that they
// name, and of a letter that package deadletter replayed to the topic that they name. Any other message is a first message, whatever its
// properties say: an application may have copied them. Inbox.Key also knows the retry topics of WithRetryTopic.
func Key(msg pulsar.Message) string { return keyOf(msg, nil) }

// keyOf is Key, with retry topics that do not have their default names.
func keyOf(msg pulsar.Message, retryTopics []string) string {
	topic, props := topicname.Base(topicname.Full(msg.Topic())), msg.Properties()
	if origin := props[pulsar.SysPropertyRealTopic]; origin != "" {
		origin = topicname.Base(topicname.Full(origin))
		id := cmp.Or(props[pulsar.PropertyOriginMessageID], props[pulsar.SysPropertyOriginMessageID])
		if id != "" && (isReplay(topic, origin, props) || isRetry(topic, props, retryTopics)) {
			return origin + " " + id
		}
	}
	return topic + " " + firstID(msg)
}

func isReplay(topic, origin string, props map[string]string) bool {
	return topic == origin && props[deadletter.PropertyReplayRun] != ""
}

func isRetry(topic string, props map[string]string, retryTopics []string) bool {
	subscription := props[reconsume.PropertyRealSubscription]
	return subscription != "" && strings.HasSuffix(topic, "-"+subscription+pulsar.RetryTopicSuffix) || slices.Contains(retryTopics, topic)
}

// firstID returns the id as retries and dead letters of the message name it: pulsar-client-go's ids have partition 0 where the
// consumer subscribed to one partition, so the partition is that of the topic's name.
func firstID(msg pulsar.Message) string {
	id := msg.ID()
	number := strings.TrimPrefix(strings.TrimPrefix(msg.Topic(), topicname.Base(msg.Topic())), "-partition-")
	if n, err := strconv.ParseInt(number, 10, 32); err == nil && int32(n) != id.PartitionIdx() {
		id = pulsar.NewMessageID(id.LedgerID(), id.EntryID(), id.BatchIdx(), int32(n))
	}
	return id.String()
}

// receiptOf returns the primary key of a receipt: 128 bits of a SHA-256 of subscription and key.
func receiptOf(subscription, key string) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %s", len(subscription), subscription, key))
	return sum[:16]
}
