package doctor

import "time"

var keepAlive = Check{
	Name: "keep-alive", About: "Consumers", Needs: Given,
	Asks: "Is a dead connection noticed within three minutes?",
	Why: "pulsar-client-go notices a dead link after two or three KeepAliveIntervals. Messages acknowledged " +
		"until then may come again",
	Remedy: "`pulsar.ClientOptions{KeepAliveInterval: 30 * time.Second}`, or less",
	look: func(v *visit) verdict {
		d := v.Consumer.KeepAliveInterval
		return judge(3*d <= 3*time.Minute, Warning, "KeepAliveInterval is %v", d)
	},
}
