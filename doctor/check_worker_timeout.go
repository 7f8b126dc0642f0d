package doctor

var workerTimeout = Check{
	Name: "worker-timeout", About: "Policy", Needs: Given,
	Asks:   "Is the worker's timeout longer than a handler takes?",
	Why:    "a slower handler fails each time, and its messages become dead letters",
	Remedy: "`worker.WithTimeout` of several times the handler's time, or `timeout` in the file",
	look: func(v *visit) verdict {
		takes := v.Load.HandlerTime
		if v.Worker == nil || v.Worker.Timeout == 0 || takes == 0 {
			return verdict{}
		}
		timeout, status := v.Worker.Timeout, Warning
		if takes >= timeout {
			status = Problem
		}
		return judge(2*takes <= timeout, status, "the worker's timeout is %v, a handler takes %v", timeout, takes)
	},
}
