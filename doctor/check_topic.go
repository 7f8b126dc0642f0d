package doctor

import (
	"errors"

	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

var topicExists = Check{
	Name: "topic", About: "Topic and subscription", Needs: AdminAPI,
	Asks: "Does the topic exist?",
	Why:  "an unknown name is often misspelled",
	Remedy: "`pulsar-admin namespaces create {namespace}` if the namespace is missing; `pulsar-admin topics create " +
		"{topic}`",
	look: func(v *visit) verdict {
		found := v.existence(v.Topic)
		if exists, err := v.exists(v.Topic); err == nil && !exists && topicname.IsPersistent(v.Topic) {
			// the name may be wrong, even if the broker creates topics on demand
			if found.status == Unknown {
				found.text = local(v.Topic) + " does not exist; " + found.text
			}
			found.status = Problem
		}
		return found
	},
}

// existence returns a verdict that says whether a topic exists or may be created.
func (v *visit) existence(topic string) verdict {
	if topic == "" {
		return verdict{}
	}
	found, err := v.exists(topic)
	if err != nil {
		return unknown(err)
	}
	if found {
		n, _ := v.partitions(topic)
		if n > 0 {
			return ok("%s has %d partitions", local(topic), n)
		}
		return ok("%s exists", local(topic))
	}
	may, err := autoTopics.ofTopic(v, topic)
	if errors.Is(err, errNoNamespace) {
		return problem("%v", err)
	}
	if err != nil {
		return unknown(err)
	}
	return judge(may, Problem, "%s does not exist, and the broker %s", local(topic),
		map[bool]string{true: "creates it when it is used",
			false: "may not create it"}[may])
}
