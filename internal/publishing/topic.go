package publishing

import "errors"

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
