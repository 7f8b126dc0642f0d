package inbox

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// Key returns a text that identifies a message over redeliveries, retries and replays: the topic and the id under which
// it was first published. Use this text as the idempotency key of a call that no transaction covers, such as an HTTP
// request.
//
// The properties of a retry or a replayed letter name its first message. Key believes these properties in two cases:
// the message is on the default retry topic of the subscription that the properties name, or package deadletter
// replayed the message to this topic. Any other message is a first message, whatever its properties say: an application
// may have copied them. A service that publishes a message to its own topic again must not copy its properties.
// Inbox.Key also knows the retry topics of WithRetryTopic.
func Key(msg pulsar.Message) string { return keyOf(msg, nil) }

// keyOf is Key with knowledge of retryTopics: the retry topics that do not have the default name.
func keyOf(msg pulsar.Message, retryTopics []string) string {
	topic, props := topicname.Base(topicname.Full(msg.Topic())), msg.Properties()
	if origin := props[pulsar.SysPropertyRealTopic]; origin != "" {
		origin = topicname.Base(topicname.Full(origin))
		id := cmp.Or(props[pulsar.PropertyOriginMessageID], props[pulsar.SysPropertyOriginMessageID])
		if id != "" && (publishing.IsReplay(msg) || isRetry(topic, props, retryTopics)) {
			return origin + " " + id
		}
	}
	return topic + " " + publishing.OriginID(msg)
}

func isRetry(topic string, props map[string]string, retryTopics []string) bool {
	subscription := props[reconsume.PropertyRealSubscription]
	return subscription != "" && strings.HasSuffix(topic, "-"+subscription+pulsar.RetryTopicSuffix) ||
		slices.Contains(retryTopics, topic)
}

// receiptOf returns the primary key of a receipt. Its first 32 bits are from a SHA-256 of the subscription and the
// key's neighborhood, the other 96 from a SHA-256 of the subscription and the key.
func receiptOf(subscription, key string) []byte {
	text := strconv.AppendInt(make([]byte, 0, 256), int64(len(subscription)), 10)
	text = append(append(append(text, ' '), subscription...), ' ')
	near := sha256.Sum256(appendNeighborhood(text, key))
	own := sha256.Sum256(append(text, key...))
	return append(near[:4:4], own[:12]...)
}

// appendNeighborhood appends a text that a thousand consecutive messages have in common. So their receipts are in a few
// pages of the index, however large the table is. A key without an ID is its own neighborhood.
func appendNeighborhood(text []byte, key string) []byte {
	topic, id, _ := strings.Cut(key, " ")
	ledger, rest, _ := strings.Cut(id, ":")
	digits, _, ok := strings.Cut(rest, ":")
	entry, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil {
		return append(text, key...)
	}
	text = append(text, key[:len(topic)+1+len(ledger)+1]...)
	return strconv.AppendInt(text, entry/1000, 10)
}
