package doctor

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

// reachable comes first, since the checks that need the admin API are not run without it.
var reachable = Check{
	Name: "reachable", About: "Connection", Needs: AdminAPI,
	Asks:   "Do the admin API and the broker answer?",
	Why:    "most checks need both",
	Remedy: "check `-url` and `-admin-url`, TLS, tokens and the network",
	look: func(v *visit) verdict {
		if err := v.askAdmin(); err != nil {
			v.unreachable = true
			return problem("the admin API at %s: %v", v.Admin.URL, err)
		}
		found, err := v.exists(v.Topic)
		said := "the admin API answers"
		if v.Client != nil {
			if err := v.askBroker(err == nil && found); err != nil {
				return problem("the broker: %v", err)
			}
			said = "the broker and its admin API answer"
		}
		if err == nil && !found {
			said += "; the topic is not there yet"
		}
		return ok("%s", said)
	},
}

// askAdmin returns an error if no admin API answers. A refusal is an answer. A 404 whose text does not have the form of
// a broker's error comes from another server.
func (v *visit) askAdmin() error {
	var version string
	err := v.get("brokers/version", &version)
	var refused *admin.Error
	switch {
	case err != nil && (!errors.As(err, &refused) || refused.Status == http.StatusNotFound && !refused.HasReason()):
		return err
	case version != "" && (version[0] < '0' || version[0] > '9'):
		return fmt.Errorf("it does not answer with a version, but with %.40q", version)
	}
	return nil
}

// brokerPatience is how long the broker may take to answer. Upstream would wait for a minute.
const brokerPatience = 5 * time.Second

// askBroker looks the topic up. If the topic does not exist, it looks up the name of a partition instead, since a
// lookup may make the broker create a topic, but not a partition. It ignores an error that the broker answers for a
// partition.
func (v *visit) askBroker(exists bool) error {
	topic := v.Topic
	if !exists {
		topic += "-partition-0"
	}
	answer := make(chan error, 1)
	go func() {
		_, err := v.Client.TopicPartitions(topic)
		answer <- err
	}()
	var err error
	select {
	case err = <-answer:
	case <-v.ctx.Done():
		err = v.ctx.Err()
	case <-time.After(brokerPatience):
		err = fmt.Errorf("no answer within %v", brokerPatience)
	}
	if err != nil && brokerError.MatchString(err.Error()) {
		if exists {
			return err
		}
		return nil
	}
	v.silent = err != nil
	return err
}

// brokerError matches the name of an error that the broker answered with, such as AuthorizationError. All other errors
// come from the connection.
var brokerError = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
