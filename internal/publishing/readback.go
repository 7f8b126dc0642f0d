package publishing

import (
	"errors"
	"fmt"
	"go/token"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// Properties of retries; package reconsume writes them. A consumer believes them only if IsFrom reports that the
// message came from the consumer's own retry topic.
const (
	// on a retry of a nacked message: RECONSUMETIMES, a colon, and the redelivery count of the message
	NackCount = "NACK_COUNT"
	// how often the message was delivered before, over all retries, without snoozed deliveries
	AttemptCount      = "ATTEMPT_COUNT"
	OriginPublishTime = "ORIGIN_PUBLISH_TIME" // when the message was first published, in milliseconds since 1970
)

// IsFrom reports whether a message came from a topic, given by its full name, or from a partition of it. A consumer
// believes the properties of a retry only on messages from its own retry topic: on any other message they are another
// consumer's, or forged. Three places decide this: isOwnRetry of package reconsume, settings.isRetry of package
// redelivery, and, by a rule of its own, isRetry of package inbox.
func IsFrom(topic string, msg pulsar.Message) bool {
	name := msg.Topic()
	return strings.HasPrefix(name, topic) && (name == topic || topicname.Base(name) == topic)
}

// IsRetry reports whether a client published these properties with a retry: all clients set the three properties that
// IsRetry reads.
func IsRetry(props map[string]string) bool {
	return ReconsumeTimes(props) > 0 && props[pulsar.SysPropertyRealTopic] != "" &&
		props[pulsar.SysPropertyOriginMessageID] != ""
}

// ReconsumeTimes returns how often a message was reconsumed. Any publisher can forge the property: a value that is
// negative or not a number counts as 0, and one that is too large as MaxUint32-1.
func ReconsumeTimes(props map[string]string) uint32 {
	n, err := strconv.ParseInt(props[pulsar.SysPropertyReconsumeTimes], 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	return uint32(min(max(n, 0), math.MaxUint32-1))
}

// DelayTime returns the delay of a retry, counted from its publish time. ok is false if msg is not a retry, or has no
// valid delay. The broker may deliver a retry sooner, and much sooner if delayed delivery is switched off. Any
// publisher can forge the properties of a retry.
func DelayTime(msg pulsar.Message) (delay time.Duration, ok bool) {
	props := msg.Properties()
	ms, err := strconv.ParseInt(props[pulsar.SysPropertyDelayTime], 10, 64)
	if err != nil || ms < 0 || ms > math.MaxInt64/int64(time.Millisecond) || !IsRetry(props) {
		return 0, false
	}
	return time.Duration(ms) * time.Millisecond, true
}

// RedeliveryCount returns the redelivery count of a nacked message that was moved to the retry topic, or 0.
func RedeliveryCount(msg pulsar.Message) uint32 {
	props := msg.Properties()
	times, count, _ := strings.Cut(props[NackCount], ":")
	n, err := strconv.ParseUint(count, 10, 32)
	if err != nil || !IsRetry(props) || times != props[pulsar.SysPropertyReconsumeTimes] {
		return 0 // the property is of an earlier retry, or of another client
	}
	return uint32(n)
}

// Attempts returns how often the message of a retry was delivered before the retry was published. A retry that another
// client published counts once for each time that the message was reconsumed.
func Attempts(retry pulsar.Message) uint32 {
	props := retry.Properties()
	if !IsRetry(props) {
		return 0
	}
	n, err := strconv.ParseUint(props[AttemptCount], 10, 32)
	if err != nil {
		return ReconsumeTimes(props) // another client published it
	}
	return uint32(n)
}

// FirstPublished returns when the message of a retry was first published. If the properties do not say, it returns when
// the retry was published.
func FirstPublished(retry pulsar.Message) time.Time {
	published, props := retry.PublishTime(), retry.Properties()
	ms, err := strconv.ParseInt(props[OriginPublishTime], 10, 64)
	if err != nil || ms <= 0 || ms > published.UnixMilli() || !IsRetry(props) {
		return published
	}
	return time.UnixMilli(ms)
}

// OutlivesTTL reports whether the broker may delete a message, by the time to live of its namespace, before a delay is
// over. A ttl of 0 means none.
func OutlivesTTL(published time.Time, ttl, delay time.Duration) bool {
	if ttl == 0 {
		return false
	}
	margin := min(ttl/10, time.Minute) // for the difference of clocks, and to publish the dead letter
	return time.Until(published.Add(ttl-margin)) < delay
}

// TypeName returns the name of the first exported type in an error's chain; if there is none, the name of the last
// type. The unexported types of packages errors and fmt say nothing, and neither does Addressed. If a method panics,
// the chain ends there.
func TypeName(err error) (name string) {
	defer func() {
		if recover() != nil {
			name = fmt.Sprintf("%T", err)
		}
	}()
	for {
		t := reflect.TypeOf(err)
		short := t.Name()
		if t.Kind() == reflect.Pointer {
			short = t.Elem().Name()
		}
		if token.IsExported(short) && t != reflect.TypeFor[*Addressed]() {
			return t.String()
		}
		inner := errors.Unwrap(err)
		if joined, ok := err.(interface{ Unwrap() []error }); ok && len(joined.Unwrap()) > 0 {
			inner = joined.Unwrap()[0]
		}
		if inner == nil {
			return t.String()
		}
		err = inner
	}
}

// OriginID returns a message's ID as its retries and dead letters name it. The partition is taken from the topic's
// name: pulsar-client-go's IDs have partition 0 if the consumer has subscribed to a single partition.
func OriginID(msg pulsar.Message) string {
	id := msg.ID()
	base := topicname.Base(msg.Topic())
	partition, err := strconv.ParseInt(strings.TrimPrefix(strings.TrimPrefix(msg.Topic(), base), "-partition-"), 10, 32)
	if err == nil && int32(partition) != id.PartitionIdx() {
		id = pulsar.NewMessageID(id.LedgerID(), id.EntryID(), id.BatchIdx(), int32(partition))
	}
	return id.String()
}
