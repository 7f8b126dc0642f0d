// Package topicname knows the forms that names of topics have.
package topicname

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Persistent and NonPersistent begin whole names.
const Persistent, NonPersistent = "persistent://", "non-persistent://"

// AttemptsSuffix ends the names of topics that have logs of attempts.
const AttemptsSuffix = "-ATTEMPTS"

// Retry returns the default retry topic of a topic and a subscription, as the Java and Go clients name it. A
// partitioned topic has one.
func Retry(topic, subscription string) string {
	return Base(Full(topic)) + "-" + subscription + pulsar.RetryTopicSuffix
}

// DeadLetter returns the default dead letter topic of a topic and a subscription. A partitioned topic has one.
func DeadLetter(topic, subscription string) string {
	return Base(Full(topic)) + "-" + subscription + pulsar.DlqTopicSuffix
}

// Full returns the whole name of a topic.
func Full(name string) string {
	switch {
	case strings.Contains(name, "://"):
		return name
	case strings.Contains(name, "/"):
		return Persistent + name
	}
	return Persistent + "public/default/" + name
}

// In returns the whole name of a topic. A short one is of the namespace of another topic, or of public/default if that
// is "".
func In(origin, name string) string {
	if !IsShort(name) {
		return Full(name)
	}
	origin = Full(origin)
	return origin[:strings.LastIndex(origin, "/")+1] + name
}

// IsShort reports whether a name has no namespace, so that In and Full differ unless the origin is in public/default.
func IsShort(name string) bool { return name != "" && !strings.Contains(name, "/") }

// IsPersistent reports whether the broker keeps the messages of a topic until they are acknowledged.
func IsPersistent(name string) bool { return !strings.HasPrefix(name, NonPersistent) }

// Base returns the name of the partitioned topic that a topic is a partition of, or else its own.
func Base(name string) string { return partition.ReplaceAllString(name, "") }

var partition = regexp.MustCompile(`-partition-\d+$`)

// Same reports whether two names, in whatever form, are of one topic or its partitions.
func Same(a, b string) bool { return Base(Full(a)) == Base(Full(b)) }

// Want is the wanted form of a topic name; "" if a topic can have this one. A topic of long ago has a cluster too.
func Want(name string) string {
	if valid.MatchString(name) {
		return ""
	}
	return "topic, tenant/namespace/topic or persistent://tenant/namespace/topic"
}

// WantNumber is the wanted form of a name with -partition- whose number pulsar-client-go cannot read; "" if it can.
func WantNumber(name string) string {
	if _, err := strconv.Atoi(name[strings.LastIndex(name, "-")+1:]); err == nil ||
		!strings.Contains(name, "-partition-") {
		return ""
	}
	return "a name without -partition-, or with a number after its last dash"
}

var valid = regexp.MustCompile(`^([^/]+|([-=:.\w]+/){2,3}[^/]+|(non-)?persistent://([-=:.\w]+/){2}([^/]+|[-=:.\w]+/.+))$`)
