package doctor

var typeDelays = Check{
	Name: "type-delays", About: "Topic and subscription", Needs: Options,
	Asks:   "Does the broker delay retries on this type of subscription?",
	Why:    "on Exclusive and Failover the broker sends a retry at once, and the retry waits in the consumer",
	Remedy: "`pulsar.ConsumerOptions{Type: pulsar.Shared}` or `pulsar.KeyShared`, or nacks in place of retries",
	look: func(v *visit) verdict {
		if v.retry() == "" || v.typeOf() == "" {
			return verdict{}
		}
		if v.delays() {
			return ok("%s", v.typeOf())
		}
		return problem("the retry topic does not delay: the broker delays messages only on Shared and Key_Shared, "+
			"and the subscription is %s", v.typeOf())
	},
}
