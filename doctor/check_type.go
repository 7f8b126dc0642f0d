package doctor

import "fmt"

var subscriptionType = Check{
	Name: "type", About: "Topic and subscription", Needs: AdminAPI,
	Asks:   "Is the subscription of the type in the options?",
	Why:    "the broker refuses a consumer of another type while others are connected",
	Remedy: "give all consumers of {subscription} one type, and stop the others",
	look: func(v *visit) verdict {
		sub, found, err := v.subscription()
		if err != nil || !found || v.Type == "" || len(sub.Consumers) == 0 {
			return verdict{}
		}
		said := ""
		if sub.Type != v.Type {
			said = fmt.Sprintf(", the options say %s", v.Type)
		}
		return judge(sub.Type == v.Type, Problem, "%s%s", sub.Type, said)
	},
}
