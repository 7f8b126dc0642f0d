package doctor

import "fmt"

var batchIndex = Check{
	Name: "batch-index", About: "Limits", Needs: SuperUser,
	Asks: "If producers batch, does the client send, and the broker keep, acknowledgements of single messages?",
	Why: "otherwise one waiting message brings its whole batch back after a restart, and all of the batch counts " +
		"towards the limits",
	Remedy: "`acknowledgmentAtBatchIndexLevelEnabled=true` in `broker.conf`, which is not Pulsar's default; " +
		"`Subscribe` without `WithoutBatchIndexAcks`, " +
		"or `pulsar.ConsumerOptions{EnableBatchIndexAcknowledgment: true}`",
	look: func(v *visit) verdict {
		n := v.messagesPerEntry()
		if n == 1 {
			return verdict{}
		}
		conf, err := v.broker()
		if err != nil {
			return unknown(err)
		}
		keeps := conf["acknowledgmentAtBatchIndexLevelEnabled"] == "true"
		client := v.Consumer.BatchIndexAcknowledgment
		switch {
		case n == 0 && keeps:
			return verdict{}
		case n == 0:
			return verdict{Unknown, "the broker keeps no acknowledgements of single messages; before a consumer " +
				"has got messages, it is not known whether producers batch"}
		case !keeps:
			return warning("batches of about %d, and the broker keeps no acknowledgements of single messages", n)
		case client == nil:
			return verdict{Unknown, fmt.Sprintf("batches of about %d; the broker keeps acknowledgements of single "+
				"messages; the client sends them "+
				"if it has EnableBatchIndexAcknowledgment, which Subscribe of this library sets by default; "+
				"give -batch-index-acks", n)}
		}
		return judge(*client, Warning,
			"batches of about %d; the broker keeps acknowledgements of single messages, and the client %s them", n,
			map[bool]string{true: "sends", false: "does not send"}[*client])
	},
}
