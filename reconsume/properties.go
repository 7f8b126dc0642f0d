package reconsume

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Properties of retries and dead letters, beside those that pulsar-client-go names. The Java client writes the first too.
const (
	PropertyRealSubscription = "REAL_SUBSCRIPTION"
	PropertyDelayLevel       = "DELAY_LEVEL"       // the last level that LaterLevel, or Later after it, used
	PropertyException        = "EXCEPTION_MESSAGE" // why the message is a dead letter, its first KiB
	PropertyOriginTopic      = "ORIGIN_TOPIC"      // the topic, with its partition, that the dead letter was received from
	PropertyRedeliveryCount  = "REDELIVERY_COUNT"  // how often it was redelivered before
	PropertyDeadLetterTime   = "DEAD_LETTER_TIME"  // in milliseconds since 1970
)

func isSystem(name string) bool {
	switch name {
	case pulsar.SysPropertyDelayTime, pulsar.SysPropertyRealTopic, pulsar.SysPropertyRetryTopic,
		pulsar.SysPropertyReconsumeTimes, pulsar.SysPropertyOriginMessageID, pulsar.PropertyOriginMessageID,
		PropertyRealSubscription, PropertyDelayLevel, PropertyException, PropertyOriginTopic, PropertyRedeliveryCount,
		PropertyDeadLetterTime:
		return true
	}
	return false
}

// reconsumeTimes returns how often a message was reconsumed. The property may be anybody's: what is no number, or less than
// 0, counts as 0, and what is too large as the largest number.
func reconsumeTimes(props map[string]string) uint32 {
	n, err := strconv.ParseInt(props[pulsar.SysPropertyReconsumeTimes], 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	return uint32(min(max(n, 0), math.MaxUint32-1))
}

// delayLevel returns the level that a message has, or 0.
func delayLevel(props map[string]string) int {
	level, err := strconv.Atoi(props[PropertyDelayLevel])
	if err != nil || level < 0 || level > math.MaxInt32 {
		return 0
	}
	return level
}

// DelayTime returns the delay that a retry was published with, and whether msg is a retry at all.
func DelayTime(msg pulsar.Message) (time.Duration, bool) {
	props := msg.Properties()
	if _, ok := props[pulsar.SysPropertyReconsumeTimes]; !ok {
		return 0, false
	}
	millis, err := strconv.ParseInt(props[pulsar.SysPropertyDelayTime], 10, 64)
	if err != nil || millis < 0 || millis > math.MaxInt64/int64(time.Millisecond) {
		return 0, false
	}
	return time.Duration(millis) * time.Millisecond, true
}

// RedeliveryCount returns the redelivery count that LaterCounted handed on with msg, or 0.
func RedeliveryCount(msg pulsar.Message) uint32 {
	n, err := strconv.ParseUint(msg.Properties()[PropertyRedeliveryCount], 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// properties returns a message's own and custom ones, with those of its origin: the first retry sets them, later ones keep
// them. They only inform: where a message goes is up to Options.
func (o *Options) properties(msg pulsar.Message, custom map[string]string) map[string]string {
	props := make(map[string]string, len(msg.Properties())+len(custom)+8)
	for name, value := range msg.Properties() {
		props[name] = value
	}
	delete(props, PropertyRedeliveryCount)
	for name, value := range custom {
		props[name] = value
	}
	id := msg.ID().String()
	for name, value := range map[string]string{
		pulsar.SysPropertyRealTopic:       BaseTopic(msg.Topic()),
		PropertyRealSubscription:          o.Subscription,
		pulsar.SysPropertyOriginMessageID: id,
		pulsar.PropertyOriginMessageID:    id,
	} {
		if _, ok := props[name]; !ok {
			props[name] = value
		}
	}
	return props
}

func (o *Options) retryProperties(msg pulsar.Message, delay time.Duration, level int, custom map[string]string) map[string]string {
	props := o.properties(msg, custom)
	props[pulsar.SysPropertyReconsumeTimes] = strconv.FormatUint(uint64(reconsumeTimes(props))+1, 10)
	millis := delay.Milliseconds()
	if time.Duration(millis)*time.Millisecond < delay {
		millis++ // never early
	}
	props[pulsar.SysPropertyDelayTime] = strconv.FormatInt(millis, 10)
	if level > 0 {
		props[PropertyDelayLevel] = strconv.Itoa(level)
	}
	return props
}

const maxReason = 1024

func (o *Options) deadLetterProperties(msg pulsar.Message, custom map[string]string, reason error) map[string]string {
	props := o.properties(msg, custom)
	if reason != nil && !o.OmitReason {
		text := reason.Error()
		if len(text) > maxReason {
			text = strings.ToValidUTF8(text[:maxReason], "")
		}
		props[PropertyException] = text
	}
	props[PropertyOriginTopic] = msg.Topic()
	props[PropertyRedeliveryCount] = strconv.FormatUint(uint64(msg.RedeliveryCount()), 10)
	props[PropertyDeadLetterTime] = strconv.FormatInt(time.Now().UnixMilli(), 10)
	return props
}
