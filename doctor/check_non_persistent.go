package doctor

import "github.com/pulsar-redelivery/redelivery/internal/topicname"

var nonPersistent = Check{
	Name: "non-persistent", About: "Topic and subscription", Needs: Options,
	Asks:   "Is the topic persistent?",
	Why:    "the broker does not store messages of a non-persistent topic, so it cannot redeliver them",
	Remedy: "use a topic `persistent://{namespace}/NAME`",
	look: func(v *visit) verdict {
		if topicname.IsPersistent(v.Topic) {
			return verdict{}
		}
		return problem("messages of %s are not redelivered: the broker does not store them", v.Topic)
	},
}
