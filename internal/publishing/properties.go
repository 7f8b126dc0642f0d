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
)

// NackCount is a property of a retry that a nack was moved to: RECONSUMETIMES, a colon, and the redelivery count of the message.
const NackCount = "NACK_COUNT"

// PropertyAttempts is a property of a retry: RECONSUMETIMES, a colon, and how often the message was attempted before, nacks included.
const PropertyAttempts = "ATTEMPTS"

// Attempts returns how often a message was attempted before a client published it with these properties to the retry topic. A retry of
// another client says only how often it was reconsumed.
func Attempts(props map[string]string) uint32 {
	if !IsRetry(props) {
		return 0
	}
	reconsumed := ReconsumeTimes(props)
	times, count, _ := strings.Cut(props[PropertyAttempts], ":")
	n, err := strconv.ParseUint(count, 10, 32)
	if err != nil || times != props[pulsar.SysPropertyReconsumeTimes] { // of an earlier retry, or somebody else's
		return reconsumed
	}
	return max(uint32(n), reconsumed)
}

// IsRetry reports whether a client published these properties with a retry: all clients set all three.
func IsRetry(props map[string]string) bool {
	return ReconsumeTimes(props) > 0 && props[pulsar.SysPropertyRealTopic] != "" && props[pulsar.SysPropertyOriginMessageID] != ""
}

// ReconsumeTimes returns how often a message was reconsumed. Any publisher can forge the property: a value that is negative
// or not a number counts as 0, and one that is too large as MaxUint32-1.
func ReconsumeTimes(props map[string]string) uint32 {
	n, err := strconv.ParseInt(props[pulsar.SysPropertyReconsumeTimes], 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	return uint32(min(max(n, 0), math.MaxUint32-1))
}

// DelayTime returns the delay of a retry, counted from its publish time. It reports false if msg is not a retry of this or
// another client. The broker may deliver a retry sooner, and much sooner if delayed delivery is switched off. Any publisher can
// forge the properties of a retry.
func DelayTime(msg pulsar.Message) (time.Duration, bool) {
	props := msg.Properties()
	ms, err := strconv.ParseInt(props[pulsar.SysPropertyDelayTime], 10, 64)
	if err != nil || ms < 0 || ms > math.MaxInt64/int64(time.Millisecond) || !IsRetry(props) {
		return 0, false
	}
	return time.Duration(ms) * time.Millisecond, true
}

// RedeliveryCount returns the redelivery count of a nack that was moved to the retry topic, or 0.
func RedeliveryCount(msg pulsar.Message) uint32 {
	props := msg.Properties()
	times, count, _ := strings.Cut(props[NackCount], ":")
	n, err := strconv.ParseUint(count, 10, 32)
	if err != nil || !IsRetry(props) || times != props[pulsar.SysPropertyReconsumeTimes] {
		return 0 // of an earlier retry, or somebody else's
	}
	return uint32(n)
}

// TypeName returns the name of the first exported type in an error's chain, since what package errors and fmt make says
// nothing, or else of the last one. A chain ends where a method panics.
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
