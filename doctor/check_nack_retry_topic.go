package doctor

var nackRetryTopicUsed = Check{
	Name: "nack-retry-topic", About: "Policy", Needs: Options,
	Asks:   "Does any delay of nacks reach WithNackRetryTopic?",
	Why:    "nacks with shorter delays wait in the process, and do not survive it",
	Remedy: "`WithNackRetryTopic` with a shorter duration than the policy's longest delay; `redelivery plan` shows the delays",
	look: func(v *visit) verdict {
		at := v.Policy.NackRetryTopic
		if at <= 0 {
			return verdict{}
		}
		longest := v.schedules()[0].longest
		return judge(longest >= at, Warning, "from %v on, and the longest delay is %v", at, longest)
	},
}
