package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/dlqcommand"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// unfinished replaces the options in the text of an ErrUnfinished by the command that continues the earlier replay.
func (d *dlq) unfinished(err error) error {
	said, options, _ := strings.Cut(err.Error(), " has options ")
	var o struct {
		To               string
		Topic            string
		Routing          deadletter.Routing
		Filter           deadletter.Filter
		Max, MaxReplays  int
		Keys, Namespaces []string
	}
	if json.Unmarshal([]byte(options), &o) != nil {
		return fmt.Errorf("%w; replay with these to continue it, or with -new to abandon it", err)
	}
	command := []string{"redelivery dlq replay", quoted(short(d.topic))}
	add := func(flag string, values ...string) {
		for _, value := range values {
			command = append(command, flag, quoted(value))
		}
	}
	if o.To != toRetry {
		add("-to", o.To)
	}
	full := topicname.Full(d.topic)
	if retry := strings.TrimSuffix(full, pulsar.DlqTopicSuffix) + pulsar.RetryTopicSuffix; o.Topic != "" &&
		o.Topic != retry {
		add("-topic", o.Topic)
	}
	if o.Routing != "" {
		add("-routing", string(o.Routing))
	}
	add("-group", o.Filter.Groups...)
	add("-id", o.Filter.IDs...)
	add("-key", o.Filter.Keys...)
	for _, name := range slices.Sorted(maps.Keys(o.Filter.Properties)) {
		add("-property", name+"="+o.Filter.Properties[name])
	}
	if !o.Filter.After.IsZero() {
		add("-after", o.Filter.After.Format(time.RFC3339Nano))
	}
	if !o.Filter.Before.IsZero() {
		add("-before", o.Filter.Before.Format(time.RFC3339Nano))
	}
	if o.Max > 0 {
		add("-max", fmt.Sprint(o.Max))
	}
	if o.MaxReplays != defaultMaxReplays {
		add("-max-replays", fmt.Sprint(o.MaxReplays))
	}
	add("-encryption-key-name", o.Keys...)
	add("-namespace", o.Namespaces...)
	if d.subscription != "" && !d.adopted {
		add("-subscription", d.subscription)
	}
	if d.anyTopic {
		command = append(command, "-any-topic")
	}
	return fmt.Errorf("%s; this continues it: %s -yes; with -new your command abandons it", said,
		strings.Join(command, " "))
}

// defaultMaxReplays is package deadletter's.
const defaultMaxReplays = 3

// quoted is a word of a shell's command line.
func quoted(word string) string { return dlqcommand.Quote(word) }
