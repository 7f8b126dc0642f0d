package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// check finds mistakes in a command line without a call to a broker.
func (d *dlq) check(verb, topic string) error {
	if err := d.checkKeyFlags(); err != nil {
		return err
	}
	switch {
	case !(d.rate >= 0):
		return fmt.Errorf("-rate is %v, want 0 or more", d.rate)
	case d.canaryTimeout < 0:
		return fmt.Errorf("-canary-timeout is %v, want 0 or more", d.canaryTimeout)
	case d.to != toRetry && d.to != toOrigin:
		return fmt.Errorf("-to is %q, want %q or %q", d.to, toRetry, toOrigin)
	case !slices.Contains(slices.Collect(maps.Keys(routings)), d.routing):
		return fmt.Errorf("-routing is %q, want same, java, murmur3 or go", d.routing)
	case !d.filter.Before.IsZero() && !d.filter.After.Before(d.filter.Before):
		return fmt.Errorf("-after is %s, want a time before that of -before, which is %s",
			d.filter.After.Format(time.RFC3339),
			d.filter.Before.Format(time.RFC3339))
	case d.max > 0 && d.canary > d.max:
		return fmt.Errorf("-canary is %d, want at most -max, which is %d", d.canary, d.max)
	case d.out != "" && d.noExport:
		return errors.New("-o and -no-export are both given, want one of them")
	case verb == "purge" && d.out == "" && !d.noExport:
		return errors.New("-o is missing, want a file to write the letters to, or -no-export")
	case verb == "import" && d.in == "":
		return errors.New("-i is missing, want a file that export or purge wrote")
	case (verb == "replay" || verb == "import") && d.secret != "" && d.public == "":
		return fmt.Errorf("-encryption-private-key is given, want -encryption-public-key too: %s encrypts letters "+
			"that were encrypted", verb)
	case verb == "list":
		if topic == "" {
			return nil
		}
		return namespaceName("namespace", topic)
	}
	for _, name := range d.namespaces {
		if err := namespaceName("-namespace", name); err != nil {
			return err
		}
	}
	if err := wholeTopic("topic", topic); err != nil || verb != "replay" {
		return err
	}
	return d.checkTarget(topicname.Full(topic))
}

// checkTarget checks -topic, the target of a replay. The argument is the dead letter topic.
func (d *dlq) checkTarget(topic string) error {
	target := topicname.Base(topicname.In(topic, d.target))
	switch {
	case d.target == "":
		return nil
	case target == topic:
		return fmt.Errorf("-topic is %q, want another topic than the dead letters' own", d.target)
	case target == topic+"-"+d.ownSub() || strings.HasSuffix(target, pulsar.DlqTopicSuffix+"-"+defaultSubscription):
		return fmt.Errorf("-topic is %q, want a topic that is not a replay's journal", d.target)
	}
	return persistent("-topic", d.target)
}

// namespaceName returns an error if a name cannot be the name of a namespace.
func namespaceName(what, name string) error {
	if strings.Count(name, "/") != 1 || topicname.Want(name+"/any") != "" {
		return fmt.Errorf("%s is %q, want tenant/namespace", what, name)
	}
	return nil
}

// wholeTopic returns an error if a name cannot be the name of a topic, or is that of a partition.
func wholeTopic(what, name string) error {
	if err := persistent(what, name); err != nil {
		return err
	}
	if full := topicname.Full(name); topicname.Base(full) != full {
		return fmt.Errorf("%s is %q, want all partitions: %s", what, name, short(topicname.Base(full)))
	}
	return nil
}

// topicName returns an error if a name cannot be the name of a topic.
func topicName(what, name string) error {
	if want := topicname.Want(name); want != "" {
		return fmt.Errorf("%s is %q, want %s", what, name, want)
	}
	return nil
}

func persistent(what, name string) error {
	if !topicname.IsPersistent(name) {
		return fmt.Errorf("%s is %q, want a persistent topic", what, name)
	}
	return topicName(what, name)
}

// noMatch is called if a command found no letters. It returns an error if groups, IDs or keys were given, so that
// a mistyped group does not look like one whose letters are all replayed or purged.
func (d *dlq) noMatch() error {
	var asked []string
	for flag, values := range map[string][]string{"-group": d.filter.Groups, "-id": d.filter.IDs,
		"-key": d.filter.Keys} {
		for _, value := range values {
			asked = append(asked, flag+" "+value)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	slices.Sort(asked)
	return fmt.Errorf("no letter has %s", strings.Join(asked, ", "))
}

// checkMatch returns an error if a report has no letter although groups, IDs or keys were given.
func (d *dlq) checkMatch(r deadletter.Report) error {
	if r.Done > 0 || len(r.Left) > 0 || r.Resumed {
		return nil
	}
	return d.noMatch()
}
