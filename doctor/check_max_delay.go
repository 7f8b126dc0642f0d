package doctor

import "time"

var maxDelay = Check{
	Name: "max-delay", About: "Retry topic", Needs: AdminAPI,
	Asks:   "Does the broker accept the longest delay?",
	Why:    "the broker refuses a retry with a longer delay, so the Consumer has to hold it back",
	Remedy: "`pulsar-admin namespaces set-delayed-delivery {namespace} --enable --time 1s --maxDelay {milliseconds}`, or shorter levels",
	look: func(v *visit) verdict {
		d, found := v.delayed()
		if found.status != OK {
			return found
		}
		longest := v.onRetryTopic()
		if d.MaxDelay <= 0 {
			return ok("no limit; the longest delay is %v", longest)
		}
		limit := time.Duration(d.MaxDelay) * time.Millisecond
		return judge(longest <= limit, Problem, "the limit is %v, the longest delay %v", limit, longest)
	},
}
