package pulsartest

import (
	"slices"
	"strings"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// topic returns the topic of a name, and creates it if needed and allowed. It always creates a missing partition of a
// partitioned topic.
func (s *Server) topic(name string, create bool) (*topic, error) {
	n, err := parseTopic(name)
	if err != nil {
		return nil, failf(wire.InvalidTopicName, "%v", err)
	}
	if t, ok := s.topics[n]; ok {
		return t, nil
	}
	if !s.namespaces[n.namespace] {
		return nil, failf(wire.TopicNotFound, "Namespace %s does not exist", n.namespace)
	}
	partition := n.partition >= 0 && int(n.partition) < s.partitions[n.base()]
	if !partition && (!create || s.noAutoCreate) {
		return nil, failf(wire.TopicNotFound, "Topic %s does not exist", n)
	}
	return s.createTopic(n), nil
}

func (s *Server) createTopic(n topicName) *topic {
	t := newTopic(s, n)
	s.topics[n] = t
	return t
}

// matching returns the topic with this name, or the partitions of the partitioned topic with this name, in order. The
// empty name means all topics.
func (s *Server) matching(name string) []*topic {
	var found []*topic
	n, err := parseTopic(name)
	if name != "" && err != nil {
		return nil
	}
	for k, t := range s.topics {
		if name == "" || k == n || k.base() == n {
			found = append(found, t)
		}
	}
	slices.SortFunc(found, func(a, b *topic) int {
		if a.name.base() == b.name.base() {
			return int(a.name.partition) - int(b.name.partition)
		}
		return strings.Compare(a.name.String(), b.name.String())
	})
	return found
}

// CreatePartitionedTopic creates a partitioned topic. If the topic is partitioned already, CreatePartitionedTopic may
// raise the number of partitions, but never lowers it.
func (s *Server) CreatePartitionedTopic(topic string, partitions int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := parseTopic(topic)
	if err != nil {
		return err
	}
	if partitions < 1 || strings.Contains(n.local, partitionSuffix) || partitions < s.partitions[n] {
		return failf(wire.NotAllowedError,
			"pulsartest: %d partitions for %s, want %d or more, and a topic that is not a partition", partitions, n,
			max(1, s.partitions[n]))
	}
	if !s.namespaces[n.namespace] {
		return failf(wire.TopicNotFound, "pulsartest: namespace %s does not exist", n.namespace)
	}
	if s.partitions[n] == 0 && len(s.matching(topic)) > 0 {
		return failf(wire.NotAllowedError, "pulsartest: %s exists and is not partitioned", n)
	}
	s.setPartitions(n, partitions)
	return nil
}

// setPartitions sets the number of partitions. It creates the missing partitions, with the durable subscriptions of the
// first partition.
func (s *Server) setPartitions(n topicName, partitions int) {
	s.partitions[n] = partitions
	for i := range partitions {
		if s.topics[n.at(i)] != nil {
			continue
		}
		t := s.createTopic(n.at(i))
		for name, sub := range s.topics[n.at(0)].subs {
			if sub.durable {
				t.subs[name] = newSubscription(t, name, true, 0)
			}
		}
	}
}

// topicsOf lists a namespace's topics. A partitioned topic is listed by its partitions.
func (s *Server) topicsOf(namespace string, mode wire.TopicsMode) []string {
	names := []string{}
	for n := range s.topics {
		if n.namespace == namespace &&
			(mode == wire.AllTopics || n.persistent() == (mode == wire.Persistent)) {
			names = append(names, n.String())
		}
	}
	slices.Sort(names)
	return names
}
