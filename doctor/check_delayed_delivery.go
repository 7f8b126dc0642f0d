package doctor

var delayedOn = Check{
	Name: "delayed-delivery", About: "Retry topic", Needs: AdminAPI,
	Asks: "Does the broker delay messages of the retry topic?",
	Why: "otherwise the broker sends each retry at once. This library holds the retry back; other libraries deliver " +
		"it early",
	Remedy: "`pulsar-admin namespaces set-delayed-delivery {namespace} --enable --time 1s`",
	look: func(v *visit) verdict {
		d, found := v.delayed()
		if found.status != OK {
			return found
		}
		return judge(d.Active, Problem, "delayed delivery is %s", map[bool]string{true: "on", false: "off"}[d.Active])
	},
}

// delayed returns the retry topic's setting of delayed delivery. Without a retry topic the verdict is None.
func (v *visit) delayed() (delayed, verdict) {
	retry := v.retry()
	if retry == "" {
		return delayed{}, verdict{}
	}
	d, err := delayedDelivery.ofTopic(v, retry)
	if err != nil {
		return d, unknown(err)
	}
	return d, ok("")
}
