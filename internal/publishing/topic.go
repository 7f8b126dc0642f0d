package publishing

import "errors"

// Addressed is the reason of a dead letter that goes to a topic of its own.
type Addressed struct {
	error
	topic string
}

// To returns a reason whose dead letter goes to topic.
func To(topic string, reason error) error { return &Addressed{reason, topic} }

func (a *Addressed) Unwrap() error { return a.error }

// TopicOf returns the topic that the reason of a dead letter names. It returns usual if the reason names none, or if a
// method of the reason panics.
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
