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

// DefaultSubscription is that of deadletter.Options.
const DefaultSubscription = "redelivery"

// documented is the subscription that the documents have users make.
const documented = "inspect"

// Subscription is one of a dead letter topic, and how many consumers it has.
type Subscription struct {
	Name      string
	Consumers int
}

// Adopt returns the one subscription without a consumer, which keeps the letters for the tool, unless the tool has a
// subscription of its own already. Of several it is the one with a journal, of an unfinished replay. Another topic's
// subscription may be a service's that is down. Without such a subscription, Adopt returns "".
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

// Quote returns a word of a shell's command line. Characters that are not printable become dots.
func Quote(word string) string {
	if word = Clean(word); word != "" && !needsQuotes.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Clean puts a dot for each character that is not printable, so that a text changes no terminal and no order of
// reading.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '·'
	}, s)
}
