package doctor

import (
	"errors"
	"strings"
	"time"
)

var deadLettersRead = Check{
	Name: "dead-letters-read", About: "Dead letters", Needs: Options,
	Asks: "Does the dead letter topic have a subscription?",
	Why:  "the broker deletes messages of a topic without a subscription",
	Remedy: "`InitialSubscriptionName` in `DLQPolicy` or `WithDeadLetterPolicy`; `pulsar-admin topics " +
		"create-subscription -s inspect {dead}`",
	look: func(v *visit) verdict {
		dead := v.dead()
		if dead == "" {
			return verdict{}
		}
		if v.unreachable {
			return verdict{}
		}
		if v.Admin.URL == "" {
			if v.InitialSubscriptionName != "" {
				return verdict{}
			}
			return warning("dead letters without InitialSubscriptionName: the broker deletes them if their topic " +
				"has no subscription")
		}
		s, err := v.stats(dead)
		switch {
		case err != nil && !errors.Is(err, errNoTopic):
			return unknown(err)
		case err == nil:
			var durable []string
			for _, name := range sorted(s.Subscriptions) {
				if d := s.Subscriptions[name].IsDurable; d == nil || *d {
					durable = append(durable, name)
				}
			}
			if len(durable) > 0 {
				return ok("%s", strings.Join(durable, ", "))
			}
		}
		if v.InitialSubscriptionName != "" {
			may, err := autoSubscriptions.ofTopic(v, dead)
			if err != nil {
				return worse(unknown(err), verdict{Unknown, "it is not known whether the broker may create " +
					v.InitialSubscriptionName})
			}
			return judge(may, Problem, "the options name subscription %s, which the broker %s",
				v.InitialSubscriptionName, map[bool]string{
					true:  "creates before the first dead letter",
					false: "may not create (allowAutoSubscriptionCreation is false): it refuses dead letters"}[may])
		}
		kept, err := retained.ofTopic(v, dead)
		switch {
		case err != nil:
			return worse(unknown(err), verdict{Unknown, "no subscription, and the retention is not known"})
		case kept.Minutes == 0 || kept.Megabytes == 0:
			return problem("no subscription: the broker deletes dead letters")
		case kept.Minutes < 0:
			return warning("no subscription; a retention of %d MB keeps dead letters", kept.Megabytes)
		}
		return warning("no subscription; the retention keeps dead letters for %v",
			time.Duration(kept.Minutes)*time.Minute)
	},
}
