package doctor

import (
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/policies"
)

var jitter = Check{
	Name: "jitter", About: "Policy", Needs: Given,
	Asks:   "If there are ten consumers or more, do the delays have jitter?",
	Why:    "without jitter, messages that failed together come back together",
	Remedy: "`backoff.WithJitter(policy, 0.2)`, or `jitter: 0.2` in the file",
	look: func(v *visit) verdict {
		n := v.instances()
		if n < 10 {
			return verdict{}
		}
		for _, s := range []backoff.RedeliveryBackoff{v.Policy.Nack, v.Policy.AckTimeoutBackoff} {
			if shortest, longest := policies.Bounds(s, 0); longest > 0 && shortest == longest {
				return warning("%d consumers, and a policy without jitter", n)
			}
		}
		return ok("%s", numberOfConsumers(n))
	},
}
