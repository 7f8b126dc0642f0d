package pulsartest

import (
	"fmt"
	"strconv"
	"strings"
)

const partitionSuffix = "-partition-"

// topicName is a topic's full name in its parts.
type topicName struct {
	domain    string // persistent or non-persistent
	namespace string // tenant/namespace
	local     string // with the partition's suffix
	partition int32  // -1 if the topic is not a partition
}

// parseTopic reads a full name or a short one: topic, or tenant/namespace/topic.
func parseTopic(name string) (topicName, error) {
	t := topicName{domain: "persistent", namespace: "public/default", local: name, partition: -1}
	if domain, rest, ok := strings.Cut(name, "://"); ok {
		t.domain = domain
		if domain != "persistent" && domain != "non-persistent" {
			return t, fmt.Errorf("invalid topic name %q: no such domain", name)
		}
		name = rest
		if !strings.Contains(name, "/") {
			name = "/" // neither short nor complete
		}
	}
	if strings.Contains(name, "/") {
		parts := strings.SplitN(name, "/", 4)
		switch {
		case len(parts) < 3 || parts[0] == "" || parts[1] == "":
			return t, fmt.Errorf("invalid topic name %q: want tenant/namespace/topic", name)
		case len(parts) == 3:
			t.namespace, t.local = parts[0]+"/"+parts[1], parts[2]
		default: // the older tenant/cluster/namespace/topic
			t.namespace, t.local = strings.Join(parts[:3], "/"), parts[3]
		}
	}
	if t.local == "" {
		return t, fmt.Errorf("invalid topic name %q: no local name", name)
	}
	if i := strings.LastIndex(t.local, partitionSuffix); i >= 0 {
		suffix := t.local[i+len(partitionSuffix):]
		if n, err := strconv.ParseInt(suffix, 10, 32); err == nil && n >= 0 && strconv.FormatInt(n, 10) == suffix {
			t.partition = int32(n)
		}
	}
	return t, nil
}

func (t topicName) String() string { return t.domain + "://" + t.namespace + "/" + t.local }

// base returns the partitioned topic that t is a partition of, or t itself.
func (t topicName) base() topicName {
	if t.partition >= 0 {
		t.local = t.local[:strings.LastIndex(t.local, partitionSuffix)]
		t.partition = -1
	}
	return t
}

// at returns partition n of t.
func (t topicName) at(n int) topicName {
	t.local += partitionSuffix + strconv.Itoa(n)
	t.partition = int32(n)
	return t
}

func (t topicName) persistent() bool { return t.domain == "persistent" }
