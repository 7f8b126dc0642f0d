package doctor

import "fmt"

var batchIndex = Check{
	Name: "batch-index", About: "Limits", Needs: SuperUser,
	Asks: "If producers batch, do the broker and the client acknowledge single messages of a batch?",
	Why: "without it a batch of which one message waits comes again as a whole after a restart (measured: 693 of 695 finished messages, and 27 with it), " +
		"and counts as a whole towards the limits",
	Remedy: "`acknowledgmentAtBatchIndexLevelEnabled=true` in `broker.conf`, and `pulsar.ConsumerOptions{EnableBatchIndexAcknowledgment: true}`",
	look: func(v *visit) verdict {
		n := v.messagesPerEntry()
		if n <= 1 {
			return verdict{}
		}
		conf, err := v.broker()
		if err != nil {
			return unknown(err)
		}
		client := v.Consumer.BatchIndexAcknowledgment
		switch {
		case conf["acknowledgmentAtBatchIndexLevelEnabled"] != "true":
			return warning("batches of about %d, and the broker does not", n)
		case client == nil:
			return verdict{Unknown, fmt.Sprintf("batches of about %d; the broker does; whether the client does is not known: -batch-index-acks says it", n)}
		}
		return judge(*client, Warning, "batches of about %d; the broker does, the client %s", n, map[bool]string{true: "too", false: "does not"}[*client])
	},
}
