// Package topicname handles the forms of topic names.
package topicname

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Persistent and NonPersistent are the beginnings of full names.
const Persistent, NonPersistent = "persistent://", "non-persistent://"

// AttemptsSuffix is the end of the names of topics with logs of attempts.
const AttemptsSuffix = "-ATTEMPTS"

// Retry returns the default retry topic of a topic and a subscription, as the Java and Go clients name it. All
// partitions of a topic share it.
func Retry(topic, subscription string) string {
	return Base(Full(topic)) + "-" + subscription + pulsar.RetryTopicSuffix
}

// DeadLetter returns the default dead letter topic of a topic and a subscription. All partitions of a topic share it.
func DeadLetter(topic, subscription string) string {
	return Base(Full(topic)) + "-" + subscription + pulsar.DlqTopicSuffix
}

// Full returns the full name of a topic.
func Full(name string) string {
	switch {
	case strings.Contains(name, "://"):
		return name
	case strings.Contains(name, "/"):
		return Persistent + name
	}
	return Persistent + "public/default/" + name
}

// In returns the full name of a topic. A name without a namespace is in the namespace of the topic origin, or in
// public/default if origin is "".
func In(origin, name string) string {
	if !IsShort(name) {
		return Full(name)
	}
	origin = Full(origin)
	return origin[:strings.LastIndex(origin, "/")+1] + name
}

// IsShort reports whether a name has no namespace. In and Full differ for such a name if the origin is not in
// public/default.
func IsShort(name string) bool { return name != "" && !strings.Contains(name, "/") }

// IsPersistent reports whether the broker keeps the messages of a topic until they are acknowledged.
func IsPersistent(name string) bool { return !strings.HasPrefix(name, NonPersistent) }

// Base returns the name without -partition-N: that of the partitioned topic, for a partition.
func Base(name string) string {
	withoutNumber := strings.TrimRight(name, "0123456789")
	if base, ok := strings.CutSuffix(withoutNumber, "-partition-"); ok && withoutNumber != name {
		return base
	}
	return name
}

// Same reports whether two names, in any form, name the same topic or partitions of it.
func Same(a, b string) bool { return Base(Full(a)) == Base(Full(b)) }

// Want returns the wanted forms of a topic name, or "" if name is valid. An old form, with a cluster, is valid too.
func Want(name string) string {
	if valid.MatchString(name) {
		return ""
	}
	return "topic, tenant/namespace/topic or persistent://tenant/namespace/topic"
}

// WantNumber returns the wanted form of a name that has -partition- without a number that pulsar-client-go can read, or
// "" if pulsar-client-go can read the name.
func WantNumber(name string) string {
	if _, err := strconv.Atoi(name[strings.LastIndex(name, "-")+1:]); err == nil ||
		!strings.Contains(name, "-partition-") {
		return ""
	}
	return "a name without -partition-, or with a number after its last dash"
}

var valid = regexp.MustCompile(`^([^/]+|([-=:.\w]+/){2,3}[^/]+|(non-)?persistent://([-=:.\w]+/){2}([^/]+|[-=:.\w]+/.+))$`)
