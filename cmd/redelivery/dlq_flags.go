package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

// parse parses flags before and after the topic.
func (d *dlq) parse(verb string, args []string) (topic string, err error) {
	set := flag.NewFlagSet("redelivery dlq", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	d.flags(set)
	set.Func("group", "", func(s string) error { d.filter.Groups = append(d.filter.Groups, s); return nil })
	set.Func("id", "", func(s string) error { d.filter.IDs = append(d.filter.IDs, s); return nil })
	set.Func("key", "", func(s string) error { d.filter.Keys = append(d.filter.Keys, s); return nil })
	set.Func("property", "", func(s string) error {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return errors.New("want name=value")
		}
		if other, ok := d.filter.Properties[name]; ok && other != value {
			return fmt.Errorf("%s is %q and %q, want one value", name, other, value)
		}
		if d.filter.Properties == nil {
			d.filter.Properties = map[string]string{}
		}
		d.filter.Properties[name] = value
		return nil
	})
	set.Func("after", "", moment(&d.filter.After))
	set.Func("before", "", moment(&d.filter.Before))
	set.StringVar(&d.subscription, "subscription", "", "")
	d.n = 10
	set.Func("n", "", countInto(&d.n, 0, math.MaxInt))
	set.BoolVar(&d.all, "all", false, "")
	set.BoolVar(&d.payload, "payload", false, "")
	set.StringVar(&d.to, "to", toRetry, "")
	set.BoolVar(&d.others, "others", false, "")
	set.StringVar(&d.target, "topic", "", "")
	set.Func("namespace", "", func(s string) error { d.namespaces = append(d.namespaces, s); return nil })
	set.StringVar(&d.routing, "routing", "same", "")
	set.Func("canary", "", countInto(&d.canary, 0, math.MaxInt))
	set.Func("canary-timeout", "", durationInto(&d.canaryTimeout))
	set.Func("max", "", countInto(&d.max, 1, math.MaxInt))
	set.Func("rate", "", numberInto(&d.rate))
	set.Func("max-replays", "", countInto(&d.maxReplays, 1, math.MaxInt))
	set.BoolVar(&d.fresh, "new", false, "")
	set.StringVar(&d.out, "o", "", "")
	set.StringVar(&d.in, "i", "", "")
	set.Func("skip", "", countInto(&d.skip, 0, math.MaxInt))
	set.BoolVar(&d.noExport, "no-export", false, "")
	set.BoolVar(&d.anyTopic, "any-topic", false, "")
	set.BoolVar(&d.yes, "yes", false, "")
	set.BoolVar(&d.asJSON, "json", false, "")
	topics, err := parseAll(set, args)
	switch {
	case err != nil:
		return "", err
	case len(topics) > 1:
		return "", fmt.Errorf("argument is %q, want only one topic", topics[1])
	case len(topics) == 1:
		topic = topics[0]
	}
	set.Visit(func(f *flag.Flag) {
		if f.Name == "to" && d.target != "" {
			err = errors.New("-to and -topic are both given, want one of them")
		}
		if of, ok := flagsOf[f.Name]; ok && !slices.Contains(strings.Fields(of), verb) {
			err = fmt.Errorf("-%s is a flag of %s, not of %s", f.Name, strings.ReplaceAll(of, " ", " and "), verb)
		}
	})
	if err == nil && topic == "" && verb != "list" {
		err = errors.New("no topic is given, want one")
	}
	if err == nil {
		err = d.check(verb, topic)
	}
	return topic, err
}

// The values of -to.
const (
	toRetry  = "retry"
	toOrigin = "origin"
)

// routings are the values of -routing.
var routings = map[string]deadletter.Routing{"same": deadletter.SamePartition, "java": deadletter.JavaStringHash,
	"murmur3": deadletter.Murmur3Hash,
	"go":      deadletter.GoStringHash}

// flagsOf has the verbs that accept each flag. Other verbs refuse the flag: -max, for example, would not limit a purge.
var flagsOf = map[string]string{
	"group": chosen, "id": chosen, "key": chosen, "property": chosen, "after": chosen, "before": chosen,
	"subscription": chosen + " import unsubscribe",
	"all":          "list", "n": "peek", "payload": "peek",
	"to": "replay", "others": "replay", "topic": "replay", "namespace": "replay", "routing": "replay",
	"canary": "replay", "canary-timeout": "replay", "max": "replay", "rate": "replay", "max-replays": "replay",
	"new": "replay",
	"yes": changing, "any-topic": changing, "i": "import", "skip": "import", "o": "export purge", "no-export": "purge",
}

const (
	chosen   = "groups peek replay export purge"
	changing = "replay purge import unsubscribe"
)

// moment parses a time, or a duration before the present minute, so that a command that is repeated in the same minute
// means the same time.
func moment(t *time.Time) func(string) error {
	return func(s string) (err error) {
		if ago, err := time.ParseDuration(s); err == nil {
			if ago < 0 { // a time in the future would choose all letters or none
				return errors.New("want 0 or more, such as 2h")
			}
			*t = time.Now().Truncate(time.Minute).Add(-ago)
			return nil
		}
		for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime,
			time.DateOnly} {
			*t, err = time.ParseInLocation(layout, s, time.Local)
			if err == nil && !t.IsZero() { // the zero time would choose everything
				return nil
			}
		}
		if tooLong.MatchString(s) {
			return errors.New("want at most " + longestDuration + ", or a time such as 2006-01-02T15:04")
		}
		return errors.New("want a duration such as 2h, or a time such as 2006-01-02T15:04")
	}
}
