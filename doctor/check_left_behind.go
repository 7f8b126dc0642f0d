package doctor

import "strings"

var leftBehind = Check{
	Name: "left-behind", About: "Topic and subscription", Needs: AdminAPI,
	Asks: "Does this configuration read everything that waits?",
	Why: "a renamed subscription or retry topic, or another order of topics, leaves messages behind that no " +
		"consumer reads",
	Remedy: "run one consumer with the old configuration until nothing is left; then `pulsar-admin topics " +
		"unsubscribe -s OLD {topic}`",
	look: func(v *visit) verdict {
		s, err := v.stats(v.Topic)
		if err != nil {
			return verdict{}
		}
		found := ok("nothing is left behind")
		for _, name := range sorted(s.Subscriptions) {
			if name != v.Subscription && s.abandoned(name) {
				found = worse(found, warning("subscription %s has %d in its backlog, and no consumer", name,
					s.Subscriptions[name].MsgBacklog))
			}
		}
		topics, err := v.namespaceTopics()
		if err != nil {
			return worse(found, unknown(err))
		}
		for _, topic := range topics {
			if topic == v.retry() {
				continue // check retry-consumer examines it
			}
			rest, ours := strings.CutPrefix(topic, v.Topic+"-")
			if !ours {
				continue
			}
			if name, is := strings.CutSuffix(rest, "-RETRY"); is {
				found = worse(found, v.leftRetries(topic, name))
			}
			if rest == v.Subscription+"-ATTEMPTS" && len(s.Subscriptions[v.Subscription].Consumers) > 0 {
				found = worse(found, v.leftLog(topic))
			}
		}
		return found
	},
}

// leftRetries looks for a backlog in a retry topic that this configuration does not read.
func (v *visit) leftRetries(topic, subscription string) verdict {
	s, err := v.stats(topic)
	if err != nil {
		return unknown(err)
	}
	if !s.abandoned(subscription) {
		return verdict{}
	}
	return warning("retry topic %s has %d in the backlog of %s, and no consumer", local(topic),
		s.Subscriptions[subscription].MsgBacklog, subscription)
}

// leftLog looks for a log of attempts that nothing reads although the subscription has consumers. With WithAttemptLog
// each of them would read it.
func (v *visit) leftLog(topic string) verdict {
	s, err := v.stats(topic)
	if err != nil {
		return unknown(err)
	}
	for _, sub := range s.Subscriptions {
		if len(sub.Consumers) > 0 {
			return verdict{}
		}
	}
	return warning("no consumer of %s reads the log of attempts %s: a message that failed before begins again with "+
		"count 0, without its delay",
		v.Subscription, local(topic))
}

// abandoned reports whether a durable subscription has a backlog but no consumer.
func (s *stats) abandoned(name string) bool {
	sub := s.Subscriptions[name]
	return sub.MsgBacklog > 0 && len(sub.Consumers) == 0 && (sub.IsDurable == nil || *sub.IsDurable)
}

// namespaceTopics returns the topics of the namespace of v.Topic. It returns a partitioned topic, not its partitions.
func (v *visit) namespaceTopics() (topics []string, err error) {
	path := "persistent/" + namespaceOf(v.Topic)
	if err := v.get(path+"/partitioned", &topics); err != nil {
		return nil, err
	}
	var others []string
	if err := v.get(path, &others); err != nil {
		return nil, err
	}
	for _, topic := range others {
		if !strings.Contains(topic, "-partition-") {
			topics = append(topics, topic)
		}
	}
	return topics, nil
}
