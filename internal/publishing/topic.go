package publishing

import (
	"errors"
	"regexp"
)

// Addressed is a reason whose dead letter goes to a topic of its own.
type Addressed struct {
	error
	topic string
}

// To returns a reason whose dead letter goes to topic.
func To(topic string, reason error) error { return &Addressed{reason, topic} }

func (a *Addressed) Unwrap() error { return a.error }

// TopicOf returns where the dead letter with a reason is to go, or else usual. Methods of an error may panic.
func TopicOf(reason error, usual string) (topic string) {
	defer func() {
		if recover() != nil {
			topic = usual
		}
	}()
	var a *Addressed
	if errors.As(reason, &a) && a.topic != "" {
		return a.topic
	}
	return usual
}

// WantTopic is what is wanted instead of a name that brokers give to no topic; "" if one can have it. A topic of long ago has a cluster too.
func WantTopic(name string) string {
	if topicName.MatchString(name) {
		return ""
	}
	return "topic, tenant/namespace/topic or persistent://tenant/namespace/topic"
}

var topicName = regexp.MustCompile(`^([^/]+|([-=:.\w]+/){2,3}[^/]+|(non-)?persistent://([-=:.\w]+/){2}([^/]+|[-=:.\w]+/.+))$`)
