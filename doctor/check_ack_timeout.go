package doctor

var ackTimeout = Check{
	Name: "ack-timeout", About: "Policy", Needs: Given,
	Asks:   "Is the ack timeout longer than a handler takes?",
	Why:    "otherwise the message is delivered again while its handler works, and handled twice",
	Remedy: "`WithAckTimeout` of twice the handler's time or more; or renew it: `worker.WithTimeout`, `InProgress`",
	look: func(v *visit) verdict {
		timeout, takes := v.Policy.AckTimeout, v.Load.HandlerTime
		if timeout == 0 || takes == 0 || v.Worker != nil && v.Worker.Timeout > 0 {
			return verdict{}
		}
		status := Warning
		if takes >= timeout {
			status = Problem
		}
		return judge(2*takes <= timeout, status, "the ack timeout is %v, a handler takes %v", timeout, takes)
	},
}
