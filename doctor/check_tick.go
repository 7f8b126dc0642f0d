package doctor

import (
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/policies"
)

var tick = Check{
	Name: "tick", About: "Retry topic", Needs: AdminAPI,
	Asks: "Is the broker's tick at most the shortest delay?",
	Why:  "a retry is late by up to a tick",
	Remedy: "`pulsar-admin namespaces set-delayed-delivery {namespace} --enable --time 1s`, or use nacks for " +
		"delays below a second",
	look: func(v *visit) verdict {
		d, found := v.delayed()
		if found.status != OK || !d.Active {
			return found
		}
		every := time.Duration(d.TickTime) * time.Millisecond
		shortest, _ := policies.Bounds(v.Policy.Reconsume, 0)
		return judge(every <= max(shortest, time.Second), Warning, "the tick is %v, the shortest delay %v", every,
			shortest)
	},
}
