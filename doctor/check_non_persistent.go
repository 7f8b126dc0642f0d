package doctor

import "github.com/pulsar-redelivery/redelivery/internal/topicname"

var nonPersistent = Check{
	Name: "non-persistent", About: "Topic and subscription", Needs: Options,
	Asks:   "Is the topic persistent?",
	Why:    "the broker keeps no message of a non-persistent topic: none is redelivered",
	Remedy: "use a topic `persistent://{namespace}/NAME`",
	look: func(v *visit) verdict {
		if topicname.IsPersistent(v.Topic) {
			return verdict{}
		}
		return problem("messages of %s are not redelivered: the broker keeps none of a non-persistent topic", v.Topic)
	},
}
