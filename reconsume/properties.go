package reconsume

import (
	"errors"
	"fmt"
	"go/token"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/backoff"
)

// Properties of retries and dead letters, in addition to those that pulsar-client-go names. The Java client also writes
// REAL_SUBSCRIPTION.
const (
	PropertyRealSubscription = "REAL_SUBSCRIPTION"
	PropertyDelayLevel       = "DELAY_LEVEL"       // the level that LaterLevel, or Later after it, used
	PropertyNackCount        = "NACK_COUNT"        // RECONSUMETIMES, a colon, and the redelivery count that StartLater passes on
	PropertyException        = "EXCEPTION_MESSAGE" // why the message is a dead letter, its first KiB
	PropertyExceptionType    = "EXCEPTION_TYPE"    // the Go type of that error
	PropertyOriginTopic      = "ORIGIN_TOPIC"      // the topic, with its partition, that the dead letter was received from
	PropertyRedeliveryCount  = "REDELIVERY_COUNT"  // how often it was redelivered before
	PropertyDeadLetterTime   = "DEAD_LETTER_TIME"  // in milliseconds since 1970
)

// system are the names that a custom property cannot have.
var system = []string{pulsar.SysPropertyDelayTime, pulsar.SysPropertyRealTopic, pulsar.SysPropertyRetryTopic,
	pulsar.SysPropertyReconsumeTimes, pulsar.SysPropertyOriginMessageID, pulsar.PropertyOriginMessageID,
	PropertyRealSubscription, PropertyDelayLevel, PropertyNackCount, PropertyException, PropertyExceptionType,
	PropertyOriginTopic, PropertyRedeliveryCount, PropertyDeadLetterTime}

// isRetry reports whether a client published these properties with a retry: all clients set all three.
func isRetry(props map[string]string) bool {
	return reconsumeTimes(props) > 0 && props[pulsar.SysPropertyRealTopic] != "" && props[pulsar.SysPropertyOriginMessageID] != ""
}

// reconsumeTimes returns how often a message was reconsumed. Any publisher can forge the property: a value that is negative
// or not a number counts as 0, and one that is too large as MaxUint32-1.
func reconsumeTimes(props map[string]string) uint32 {
	n, err := strconv.ParseInt(props[pulsar.SysPropertyReconsumeTimes], 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	return uint32(min(max(n, 0), math.MaxUint32-1))
}

// delayLevel returns the level that a retry was published with, or 0. The property may be the application's own: a level
// counts with the level's delay beside it.
func delayLevel(props map[string]string, levels backoff.DelayLevels) int {
	level, err := strconv.Atoi(props[PropertyDelayLevel])
	if err != nil || !isRetry(props) {
		return 0
	}
	if delay, err := levels.Level(level); err != nil || props[pulsar.SysPropertyDelayTime] != millis(delay) {
		return 0
	}
	return level
}

// millis rounds up: never early.
func millis(d time.Duration) string {
	ms := d.Milliseconds()
	if time.Duration(ms)*time.Millisecond < d {
		ms++
	}
	return strconv.FormatInt(ms, 10)
}

// DelayTime returns the delay of a retry, counted from its publish time. It reports false if msg is not a retry of this or
// another client. The broker may deliver a retry sooner, and much sooner if delayed delivery is switched off. Any publisher can
// forge the properties of a retry, so do not hold a message back for longer than a day because of them.
func DelayTime(msg pulsar.Message) (time.Duration, bool) {
	props := msg.Properties()
	ms, err := strconv.ParseInt(props[pulsar.SysPropertyDelayTime], 10, 64)
	if err != nil || ms < 0 || ms > math.MaxInt64/int64(time.Millisecond) || !isRetry(props) {
		return 0, false
	}
	return time.Duration(ms) * time.Millisecond, true
}

// RedeliveryCount returns the redelivery count that StartLater stored in msg, or 0.
func RedeliveryCount(msg pulsar.Message) uint32 {
	props := msg.Properties()
	times, count, _ := strings.Cut(props[PropertyNackCount], ":")
	n, err := strconv.ParseUint(count, 10, 32)
	if err != nil || !isRetry(props) || times != props[pulsar.SysPropertyReconsumeTimes] {
		return 0 // of an earlier retry, or somebody else's
	}
	return uint32(n)
}

// properties returns a message's own and custom ones, with those of its origin: the first retry sets them, later ones keep
// them. They only inform: where a message goes is up to Options.
func (o *Options) properties(msg pulsar.Message, custom map[string]string) map[string]string {
	props := make(map[string]string, len(msg.Properties())+len(custom)+10)
	maps.Copy(props, msg.Properties())
	for name, value := range custom {
		if !slices.Contains(system, name) {
			props[name] = value
		}
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

// retry is how a message is reconsumed.
type retry struct {
	delay  time.Duration
	level  int // from 1, or 0
	nacked bool
	custom map[string]string
}

func (o *Options) retryProperties(msg pulsar.Message, r retry) map[string]string {
	props := o.properties(msg, r.custom)
	props[pulsar.SysPropertyReconsumeTimes] = strconv.FormatUint(uint64(reconsumeTimes(props))+1, 10)
	props[pulsar.SysPropertyDelayTime] = millis(r.delay)
	if r.level > 0 {
		props[PropertyDelayLevel] = strconv.Itoa(r.level)
	}
	if r.nacked {
		props[PropertyNackCount] = fmt.Sprintf("%s:%d", props[pulsar.SysPropertyReconsumeTimes], uint64(msg.RedeliveryCount())+1)
	}
	return props
}

const maxReason = 1024

func (o *Options) deadLetterProperties(msg pulsar.Message, custom map[string]string, reason error) map[string]string {
	props := o.properties(msg, custom)
	if reason != nil {
		props[PropertyExceptionType] = typeName(reason)
	}
	if reason != nil && !o.OmitReason {
		text := textOf(reason)
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

// textOf returns the text of an error. The methods of a nil pointer that is an error may panic.
func textOf(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("%T, whose Error panics", err)
		}
	}()
	return err.Error()
}

// typeName returns the name of the first exported type in an error's chain, since what package errors and fmt make says
// nothing, or else of the last one. A chain ends where a method panics.
func typeName(err error) (name string) {
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
		if token.IsExported(short) {
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
