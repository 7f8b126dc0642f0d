package doctor

import (
	"errors"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

// reachable comes first: without an admin API the checks that need it are not run.
var reachable = Check{
	Name: "reachable", About: "Connection", Needs: AdminAPI,
	Asks:   "Do the admin API and the broker answer?",
	Why:    "nothing is redelivered without a connection, and nothing below can be checked",
	Remedy: "check `-url` and `-admin-url`, TLS, tokens and what is between here and the broker",
	look: func(v *visit) verdict {
		var version string
		var refused *admin.Error // which is an answer
		if err := v.get("brokers/version", &version); err != nil && !errors.As(err, &refused) {
			v.unreachable = true
			return problem("the admin API at %s: %v", v.Admin.URL, err)
		}
		if version != "" && (version[0] < '0' || version[0] > '9') {
			v.unreachable = true
			return problem("the admin API at %s: it does not answer with a version, but with %.40q", v.Admin.URL, version)
		}
		found, err := v.exists(v.Topic)
		if err == nil && found && v.Client != nil {
			if _, err := v.Client.TopicPartitions(v.Topic); err != nil {
				return problem("the broker: %v", err)
			}
			return ok("the broker and its admin API answer")
		}
		if err == nil && !found {
			return ok("the admin API answers; the topic is not there yet")
		}
		return ok("the admin API answers")
	},
}
