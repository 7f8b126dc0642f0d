package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/dlqcommand"
)

// unfinished returns an error with the command that continues an unfinished replay.
func (d *dlq) unfinished(earlier *deadletter.UnfinishedError) error {
	o := earlier.Options
	run := fmt.Errorf("%w: run %s of %s", deadletter.ErrUnfinished, earlier.Run, earlier.Started.Format(time.DateTime))
	if earlier.Edited {
		return fmt.Errorf("%w; it edits letter %s; to continue it, repeat the edit on the page of redelivery ui; to "+
			"abandon it and start yours, add -new", run, strings.Join(o.Filter.IDs, ", "))
	}
	command := []string{"redelivery dlq replay", quoted(short(d.topic))}
	add := func(flag string, values ...string) {
		for _, value := range values {
			command = append(command, flag, quoted(value))
		}
	}
	if o.ToOrigin {
		add("-to", toOrigin)
	}
	if o.Topic != "" {
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
	if o.MaxReplays > 0 {
		add("-max-replays", fmt.Sprint(o.MaxReplays))
	}
	if o.Encryption != nil {
		add("-encryption-key-name", o.Encryption.Keys...)
		add("-encryption-public-key", cmp.Or(d.public, "FILE")) // the journal has no names of files
		add("-encryption-private-key", cmp.Or(d.secret, "FILE"))
	}
	add("-namespace", o.Namespaces...)
	if d.subscription != "" && !d.adopted {
		add("-subscription", d.subscription)
	}
	if d.anyTopic {
		command = append(command, "-any-topic")
	}
	return fmt.Errorf("%w; this continues it: %s -yes; to abandon it and start yours, add -new", run,
		strings.Join(command, " "))
}

// quoted returns a word with the quotes that a shell needs.
func quoted(word string) string { return dlqcommand.Quote(word) }
