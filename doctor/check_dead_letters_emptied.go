package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

var deadLettersEmptied = Check{
	Name: "dead-letters-emptied", About: "Dead letters", Needs: AdminAPI,
	Asks: "Is each subscription of the dead letter topic emptied?",
	Why:  "unread dead letters are lost messages, and fill the disk or the backlog quota",
	Remedy: "`redelivery dlq groups {dead}`, then replay or purge; `pulsar-admin topics unsubscribe -s NAME {dead}` " +
		"for an unused subscription",
	look: func(v *visit) verdict {
		dead := v.dead()
		if dead == "" {
			return verdict{}
		}
		s, err := v.stats(dead)
		if errors.Is(err, errNoTopic) {
			return ok("the topic does not exist yet")
		}
		if err != nil {
			return unknown(err)
		}
		found := verdict{}
		for _, name := range sorted(s.Subscriptions) {
			sub := s.Subscriptions[name]
			said := fmt.Sprintf("%s: %s, %s", name, entries(sub.MsgBacklog), who(sub.Consumers))
			age := sub.oldest()
			if age > 0 {
				said += ", the oldest died " + age.Round(time.Second).String() + " ago"
			}
			const longest = 24 * time.Hour
			found = worse(found, judge(age <= longest, Warning, "%s", said))
		}
		return found
	},
}

// entries returns a number of entries with its unit. The broker counts a batch of letters as one entry.
func entries(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}

// who names the first three consumers.
func who(consumers []consumer) string {
	if len(consumers) == 0 {
		return "no consumer is connected"
	}
	var names []string
	for _, c := range consumers {
		names = append(names, c.ConsumerName)
	}
	return "read by " + few(names)
}

// few lists the first three names.
func few(names []string) string {
	const most = 3
	if rest := len(names) - most; rest > 0 {
		names = append(slices.Clone(names[:most]), fmt.Sprintf("%d more", rest))
	}
	return strings.Join(names, ", ")
}
