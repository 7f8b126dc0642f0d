package doctor

import (
	"fmt"
	"strings"
)

var consumers = Check{
	Name: "consumers", About: "Consumers", Needs: AdminAPI,
	Asks:   "Are consumers connected, each with a name of its own?",
	Why:    "without a consumer the backlog grows. On Failover the names decide which consumer is active",
	Remedy: "start a consumer; leave `pulsar.ConsumerOptions.Name` empty, or make it unique to each process",
	look: func(v *visit) verdict {
		s, err := v.stats(v.Topic)
		if err != nil {
			return verdict{}
		}
		versions, names, twice, backlog := map[string]int{}, map[string]bool{}, "", 0
		for _, part := range s.parts(v.Topic) {
			sub := part.Subscriptions[v.Subscription]
			backlog += sub.MsgBacklog - sub.MsgDelayed
			here := map[string]bool{}
			for _, c := range sub.Consumers {
				if here[c.ConsumerName] {
					twice = c.ConsumerName
				}
				if !names[c.ConsumerName] {
					versions[c.ClientVersion]++
				}
				here[c.ConsumerName], names[c.ConsumerName] = true, true
			}
		}
		var said []string
		for _, version := range sorted(versions) {
			said = append(said, fmt.Sprintf("%d of %q", versions[version], version))
		}
		switch {
		case twice != "":
			return warning("several consumers are named %q", twice)
		case len(names) == 0:
			return judge(backlog == 0, Warning, "no consumer is connected, %d in the backlog", backlog)
		}
		return ok("%s", strings.Join(said, ", "))
	},
}
