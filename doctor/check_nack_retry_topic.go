package doctor

import (
	"reflect"

	"github.com/pulsar-redelivery/redelivery/backoff"
)

var nackRetryTopicUsed = Check{
	Name: "nack-retry-topic", About: "Policy", Needs: Options,
	Asks:   "Is the longest nack delay at least the duration of WithNackRetryTopic?",
	Why:    "messages with shorter delays wait in the process, which loses these delays when it ends",
	Remedy: "`WithNackRetryTopic` with a duration below the policy's longest delay",
	look: func(v *visit) verdict {
		at := v.Policy.NackRetryTopic
		if at <= 0 || !isBuiltIn(v.Policy.Nack) {
			return verdict{}
		}
		longest := sum("nacks", v.Policy.Nack, 0, v.Policy.MaxDeliveries).longest
		return judge(longest >= at, Warning, "nacks from %v on go to the retry topic, and their longest delay is %v",
			at, longest)
	},
}

// isBuiltIn reports whether b is a policy of package backoff. Subscribe does not call other policies before a message
// fails.
func isBuiltIn(b backoff.RedeliveryBackoff) bool {
	if jitter, is := b.(interface {
		Unwrap() backoff.RedeliveryBackoff
	}); is {
		b = jitter.Unwrap()
	}
	switch b.(type) {
	case backoff.Exponential, *backoff.Exponential, backoff.DelayLevels:
		return true
	}
	return reflect.TypeOf(b) == reflect.TypeOf(backoff.Fixed(0))
}
