package doctor

import "time"

var outageCovered = Check{
	Name: "outage", About: "Policy", Needs: Given,
	Asks: "Are a message's deliveries spread over more than 30 minutes, or does the worker pause?",
	Why:  "otherwise every message becomes a dead letter in an outage",
	Remedy: "`worker.WithPauseOnFailure(100, 0.9, pause)`, or more or longer delays; after an outage " +
		"`redelivery dlq replay {dead}`",
	look: func(v *visit) verdict {
		if v.Worker != nil && v.Worker.Pauses {
			return ok("the worker pauses")
		}
		found := verdict{}
		for _, s := range v.schedules() {
			if s.ends {
				found = worse(found, judge(s.total >= outage, Warning,
					"with %s, a message is a dead letter %v after its first failure", s.of,
					s.total.Round(time.Millisecond)))
			}
		}
		return found
	},
}
