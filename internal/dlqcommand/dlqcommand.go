// Package dlqcommand chooses the subscription of a dead letter topic and quotes words of a command line, for command
// redelivery dlq and for the pages of package ui.
package dlqcommand

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/apache/pulsar-client-go/pulsar"
)

// DefaultSubscription is the default of deadletter.Options.Subscription.
const DefaultSubscription = "redelivery"

// documented is the name of the subscription that the documentation asks users to create.
const documented = "inspect"

// Subscription is a subscription of a dead letter topic, with the number of its consumers.
type Subscription struct {
	Name      string
	Consumers int
}

// Adopt returns the only subscription without a consumer: the tool then reads the letters that this subscription keeps.
// If several have no consumer, Adopt returns the one with the journal of an unfinished replay. It returns "" if there
// is no such subscription, if the tool has a subscription of its own, or if anyTopic is set. If the topic's name is not
// that of a dead letter topic, only a subscription with the documented name counts: others may belong to a service that
// is down.
func Adopt(topic string, anyTopic bool, all []Subscription, hasJournal func(subscription string) bool) string {
	var idle []string
	for _, s := range all {
		switch {
		case s.Name == DefaultSubscription || anyTopic:
			return ""
		case s.Consumers == 0 && (s.Name == documented || strings.HasSuffix(topic, pulsar.DlqTopicSuffix)):
			idle = append(idle, s.Name)
		}
	}
	if len(idle) > 1 {
		idle = slices.DeleteFunc(idle, func(name string) bool { return !hasJournal(name) })
	}
	if len(idle) == 1 {
		return idle[0]
	}
	return ""
}

var needsQuotes = regexp.MustCompile(`[^\w./:=@%+,-]`)

// Quote returns word in the form of a shell's command line. Characters that are not printable become dots.
func Quote(word string) string {
	if word = Clean(word); word != "" && !needsQuotes.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Clean replaces each character that is not printable by a dot, so that a text can neither control a terminal nor
// change the direction of reading.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '·'
	}, s)
}
