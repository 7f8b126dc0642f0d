package doctor

var retryTopicExists = Check{
	Name: "retry-topic", About: "Retry topic", Needs: AdminAPI,
	Asks:   "Does the retry topic exist, or may the broker create it?",
	Why:    "a retry that cannot be published is nacked, and waits in the process",
	Remedy: "`pulsar-admin topics create {retry}`; `pulsar-admin topics create-subscription -s {subscription} {retry}`",
	look:   func(v *visit) verdict { return v.existence(v.retry()) },
}
