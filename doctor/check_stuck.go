package doctor

var stuckDispatch = Check{
	Name: "stuck", About: "Consumers", Needs: AdminAPI,
	Asks: "Does the broker send messages to consumers that have permits?",
	Why:  "after a reconnection under load, a broker sometimes stops sending to a consumer",
	Remedy: "look for a limit of the subscription's dispatch rate; else `pulsar-admin topics unload {topic}`, or " +
		"restart the consumer",
	look: func(v *visit) verdict {
		if t := v.typeOf(); t == "Failover" { // on Failover only one consumer is active
			return verdict{}
		}
		return v.stalled(func(sub subscription, c consumer) bool {
			return c.AvailablePermits > 0 && sub.UnackedMessages == 0 && !sub.BlockedSubscriptionOnUnackedMsgs
		}, Problem, "consumer %s of %s gets nothing: %d permits, %d unacknowledged, %d in the backlog")
	},
}
