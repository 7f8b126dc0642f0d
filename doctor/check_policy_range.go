package doctor

import (
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
)

var policyRange = Check{
	Name: "policy-range", About: "Policy", Needs: Options,
	Asks:   "Do the delays of an exponential policy grow?",
	Why:    "if Max is below Min × Multiplier, the calls to a broken dependency never get rarer",
	Remedy: "a Max of many times Min, or `backoff.Fixed`",
	look: func(v *visit) verdict {
		found := verdict{}
		for _, p := range []struct {
			of string
			backoff.RedeliveryBackoff
		}{{"nacks", v.Policy.Nack}, {"ack timeouts", v.Policy.AckTimeoutBackoff}, {"retries", v.Policy.Reconsume}} {
			b := p.RedeliveryBackoff
			if jitter, is := b.(interface {
				Unwrap() backoff.RedeliveryBackoff
			}); is {
				b = jitter.Unwrap()
			}
			if e, is := b.(backoff.Exponential); is {
				first, last := e.Next(0), e.Next(1<<20)
				found = worse(found, judge(e.Next(1) < last || last >= 2*first, Warning, "delays of %s are %v to %v",
					p.of, first, last.Round(time.Millisecond)))
			}
		}
		return found
	},
}
