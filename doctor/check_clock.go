package doctor

import (
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

var clock = Check{
	Name: "clock", About: "Connection", Needs: AdminAPI,
	Asks:   "Does the broker's clock differ from this machine's by at most two seconds?",
	Why:    "the client sets the due time of a retry, and the broker compares it with its own clock",
	Remedy: "synchronize the clocks, by NTP, on the brokers and here",
	look: func(v *visit) verdict {
		began := time.Now()
		theirs, err := admin.API(v.Admin).Clock(v.ctx)
		took := time.Since(began)
		if err != nil {
			return unknown(err)
		}
		const exact = time.Second // resolution of the Date header
		differ := theirs.Sub(began.Add(took / 2)).Abs()
		said := "less than a second"
		if differ > exact+took {
			said = differ.Round(time.Second).String()
		}
		status := Warning
		if differ > time.Minute {
			status = Problem
		}
		return judge(differ <= 2*time.Second+exact+took, status, "the clocks differ by %s", said)
	},
}
