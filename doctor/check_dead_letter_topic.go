package doctor

var deadTopicExists = Check{
	Name: "dead-letter-topic", About: "Dead letters", Needs: AdminAPI,
	Asks:   "Does the dead letter topic exist, or may the broker create it?",
	Why:    "a message whose dead letter cannot be published comes back again and again",
	Remedy: "`pulsar-admin topics create {dead}`; `pulsar-admin topics create-subscription -s inspect {dead}`",
	look:   func(v *visit) verdict { return v.existence(v.dead()) },
}
