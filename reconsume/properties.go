package reconsume

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// Properties of retries and dead letters, in addition to those that pulsar-client-go names. The Java client also writes
// REAL_SUBSCRIPTION.
const (
	PropertyRealSubscription = "REAL_SUBSCRIPTION"
	PropertyDelayLevel       = "DELAY_LEVEL"       // the level that LaterLevel, or Later after it, used
	PropertyExceptionMessage = "EXCEPTION_MESSAGE" // why the message failed; at most 1 KiB
	PropertyExceptionType    = "EXCEPTION_TYPE"    // the Go type of that error
	// the topic, with its partition, that the consumer received the message from
	PropertyOriginTopic     = "ORIGIN_TOPIC"
	PropertyRedeliveryCount = "REDELIVERY_COUNT"  // how often the message was redelivered before
	PropertyDeadLetterTime  = "DEAD_LETTER_TIME"  // in milliseconds since 1970
	PropertyDeadLetterTopic = "DEAD_LETTER_TOPIC" // the topic of DeadLetterTo, if the letter could not go there

	// PropertyOriginSchemaVersion is the version, in hexadecimal digits, of the schema that the payload was written
	// with. It is set if the message has an Avro schema and could not be published with it, or if the consumer has no
	// schema.
	PropertyOriginSchemaVersion = "ORIGIN_SCHEMA_VERSION"
)

// system are the names that a custom property cannot have.
var system = append([]string{pulsar.SysPropertyDelayTime, pulsar.SysPropertyRealTopic, pulsar.SysPropertyRetryTopic,
	pulsar.SysPropertyReconsumeTimes, pulsar.SysPropertyOriginMessageID, pulsar.PropertyOriginMessageID,
	PropertyRealSubscription, PropertyDelayLevel, publishing.NackCount, publishing.AttemptCount,
	publishing.OriginPublishTime,
	PropertyOriginTopic, PropertyRedeliveryCount, PropertyDeadLetterTime, PropertyDeadLetterTopic,
	PropertyOriginSchemaVersion}, ofReplays...)

// bookkeeping are the properties that Reconsumers and replays write.
var bookkeeping = append(slices.Clone(system), PropertyExceptionMessage, PropertyExceptionType)

// ofReplays are the properties that package deadletter writes on a replayed letter. A message that was replayed to the
// consumer's topic keeps them.
var ofReplays = []string{publishing.ReplayCount, publishing.ReplayRun, publishing.ReplayTopic}

// isOwnRetry reports whether a message is a retry that a consumer of this subscription published. Only then are the
// properties of a retry believed.
func (o *Options) isOwnRetry(msg pulsar.Message) bool {
	return publishing.IsFrom(o.RetryLetterTopic, msg)
}

// reconsumeTimes returns how often a message was reconsumed by this subscription.
func (o *Options) reconsumeTimes(msg pulsar.Message) uint32 {
	if !o.isOwnRetry(msg) {
		return 0
	}
	return publishing.ReconsumeTimes(msg.Properties())
}

// delayLevel returns the level that a retry of this subscription was published with, or 0. A level counts only if
// DELAY_TIME is the delay of that level.
func delayLevel(props map[string]string, levels backoff.DelayLevels) int {
	level, err := strconv.Atoi(props[PropertyDelayLevel])
	if err != nil || !publishing.IsRetry(props) {
		return 0
	}
	if delay, err := levels.Level(level); err != nil || props[pulsar.SysPropertyDelayTime] != millis(delay) {
		return 0
	}
	return level
}

// millis returns d in milliseconds, rounded up so that no retry is early.
func millis(d time.Duration) string {
	ms := d.Milliseconds()
	if time.Duration(ms)*time.Millisecond < d {
		ms++
	}
	return strconv.FormatInt(ms, 10)
}

// properties returns a message's own properties, the custom properties, and the properties of the message's origin,
// which the first retry sets and later retries keep. It leaves out the properties that another subscription's consumer
// wrote about its own retries and dead letters. No property decides where a message goes: Options do.
func (o *Options) properties(msg pulsar.Message, custom map[string]string) map[string]string {
	props := make(map[string]string, len(msg.Properties())+len(custom)+10)
	maps.Copy(props, msg.Properties())
	if !o.isOwnRetry(msg) {
		replay := publishing.IsReplay(msg)
		for _, name := range bookkeeping {
			if !replay || !slices.Contains(ofReplays, name) {
				delete(props, name)
			}
		}
	}
	if saysCause(custom) {
		delete(props, PropertyExceptionMessage) // message and type must describe the same error
		delete(props, PropertyExceptionType)
	}
	for name, value := range custom {
		if !slices.Contains(system, name) {
			props[name] = value
		}
	}
	id := publishing.OriginID(msg)
	for name, value := range map[string]string{
		pulsar.SysPropertyRealTopic:       topicname.Base(msg.Topic()),
		PropertyRealSubscription:          o.Subscription,
		pulsar.SysPropertyOriginMessageID: id,
		pulsar.PropertyOriginMessageID:    id,
	} {
		if props[name] == "" {
			props[name] = value
		}
	}
	published := msg.PublishTime()
	if o.isOwnRetry(msg) {
		published = publishing.FirstPublished(msg)
	}
	props[publishing.OriginPublishTime] = strconv.FormatInt(published.UnixMilli(), 10)
	return props
}

// retryProperties returns the properties of a retry.
func (o *Options) retryProperties(msg pulsar.Message, r retry) map[string]string {
	props := o.properties(msg, r.Properties)
	// before: deliveries before msg was published; counted: how many of these msg.RedeliveryCount includes
	before, counted, deliveries := uint32(0), uint32(0), uint64(msg.RedeliveryCount())
	if o.isOwnRetry(msg) {
		before, counted = publishing.Attempts(msg), publishing.RedeliveryCount(msg)
	}
	if !r.Snoozed {
		deliveries++
	}
	props[pulsar.SysPropertyReconsumeTimes] = strconv.FormatUint(uint64(publishing.ReconsumeTimes(props))+1, 10)
	props[publishing.AttemptCount] = strconv.FormatUint(uint64(before)+deliveries-min(uint64(counted), deliveries), 10)
	props[pulsar.SysPropertyDelayTime] = millis(r.Delay)
	o.setCause(props, r.Cause)
	if r.Level > 0 {
		props[PropertyDelayLevel] = strconv.Itoa(r.Level)
	}
	if r.Nacked {
		props[publishing.NackCount] = fmt.Sprintf("%s:%d", props[pulsar.SysPropertyReconsumeTimes], deliveries)
	}
	return props
}

const maxReason = 1024

// setCause sets the properties of an error, if there is one.
func (o *Options) setCause(props map[string]string, cause error) {
	if cause == nil {
		return
	}
	props[PropertyExceptionType] = publishing.TypeName(cause)
	if o.OmitCause {
		delete(props, PropertyExceptionMessage) // of an earlier error
		return
	}
	text := textOf(cause)
	props[PropertyExceptionMessage] = strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}

// saysCause reports whether props, which may be custom properties or those of a retry, say why a message failed.
func saysCause(props map[string]string) bool {
	return props[PropertyExceptionMessage] != "" || props[PropertyExceptionType] != ""
}

// deadLetterProperties returns the properties of a dead letter.
func (o *Options) deadLetterProperties(msg pulsar.Message, custom map[string]string, reason error) map[string]string {
	props := o.properties(msg, custom)
	o.setCause(props, reason)
	props[PropertyOriginTopic] = msg.Topic()
	props[PropertyRedeliveryCount] = strconv.FormatUint(uint64(msg.RedeliveryCount()), 10)
	props[PropertyDeadLetterTime] = strconv.FormatInt(time.Now().UnixMilli(), 10)
	return props
}

// textOf returns the text of an error. If the error is a nil pointer, its methods may panic.
func textOf(err error) (text string) {
	defer func() {
		if recover() != nil {
			if a, ok := err.(*publishing.Addressed); ok { //nolint:errorlint // Unwrap may panic too
				err = a.Unwrap()
			}
			text = fmt.Sprintf("%T, whose Error panics", err)
		}
	}()
	return err.Error()
}
