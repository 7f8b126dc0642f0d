package doctor

import "time"

var receiverQueue = Check{
	Name: "queue", About: "Policy", Needs: Given,
	Asks: "Are prefetched messages handled within ten seconds, and within the ack timeout?",
	Why: "a message that the broker redelivers queues behind prefetched ones. Other consumers cannot take " +
		"prefetched messages, and all of these come again after a restart",
	Remedy: "`pulsar.ConsumerOptions{ReceiverQueueSize: 16}`, or about a second of work",
	look: func(v *visit) verdict {
		if v.Load.HandlerTime == 0 {
			return verdict{}
		}
		limit := 10 * time.Second
		if v.Policy.AckTimeout > 0 {
			limit = min(limit, v.Policy.AckTimeout)
		}
		at := v.Load.Concurrency
		if at == 0 && v.Worker != nil {
			at = v.Worker.Concurrency
		}
		takes := v.Load.HandlerTime * time.Duration(v.Consumer.ReceiverQueueSize) / time.Duration(max(1, at))
		if at == 0 {
			return judge(takes <= limit, Unknown,
				"%d messages, one at a time, take %v; how many are handled at a time is not known; give "+
					"-concurrency",
				v.Consumer.ReceiverQueueSize, takes.Round(time.Millisecond))
		}
		return judge(takes <= limit, Warning, "%d messages, %d at a time, take %v", v.Consumer.ReceiverQueueSize, at,
			takes.Round(time.Millisecond))
	},
}
