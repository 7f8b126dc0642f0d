package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/dlqcommand"
)

// unsubscribe removes the tool's own subscription, or that of -subscription.
func (d *dlq) unsubscribe(ctx context.Context) error {
	info, err := topicNamed(ctx, d.api, d.topic)
	if err != nil {
		return err
	}
	found, keeps, others := false, 0, []string(nil)
	for _, s := range info.Subscriptions {
		switch {
		case s.Name != d.ownSub():
			others = append(others, clean(s.Name))
		case s.Consumers > 0:
			return fmt.Errorf("subscription %s of %s has %s, want none", s.Name, short(d.topic), consumers(s.Consumers))
		default:
			found, keeps = true, s.Backlog
		}
	}
	switch { // Unsubscribe would return the same errors, but only after the plan was shown
	case !found:
		return fmt.Errorf("%w: %s has no subscription %s", deadletter.ErrNotSubscribed, d.topic, d.ownSub())
	case !d.anyTopic && d.ownSub() != defaultSubscription && !strings.HasSuffix(d.topic, pulsar.DlqTopicSuffix):
		return fmt.Errorf("%w: the name of %s does not end in %s, and subscription %s may be a service's",
			deadletter.ErrNotDeadLetters, d.topic, pulsar.DlqTopicSuffix, d.ownSub())
	}
	what := fmt.Sprintf("subscription %s, which keeps %s", clean(d.ownSub()), entries(keeps))
	if keeps > 0 && len(others) == 0 {
		what += "; it is the topic's last one: the broker deletes these entries and later ones"
	} else if keeps > 0 {
		what += "; " + strings.Join(others, ", ") + " may keep them too"
	}
	what += ".\n"
	if info.Bytes > 0 {
		// Unlike the backlog, Bytes includes acknowledged letters: the broker stores them as long as another
		// subscription needs them or their ledger exists.
		what += "A later replay or purge"
		if d.ownSub() != defaultSubscription {
			what += " with -subscription " + clean(d.ownSub())
		}
		what += " begins again with all stored letters, also those already replayed.\n"
	}
	if !d.yes {
		fmt.Fprintf(d.stdout, "Would remove %sNothing was changed. Run again with -yes.\n", what)
		return nil
	}
	if err := d.letters.Unsubscribe(ctx); err != nil {
		return err
	}
	fmt.Fprintf(d.stdout, "Removed %s", what)
	return nil
}

// imports publishes letters from a file of export or purge.
func (d *dlq) imports(ctx context.Context) error {
	file, err := os.Open(d.in)
	if err != nil {
		return err
	}
	defer file.Close()
	encryption, _ := d.encryption()
	o := deadletter.ImportOptions{Encryption: encryption, Skip: d.skip, DryRun: !d.yes}
	if !d.yes {
		plan, err := d.letters.Import(ctx, file, o)
		if err != nil {
			return err
		}
		return d.planned("Would import", plan)
	}
	p := d.progress(ctx, "imported")
	p.total = 0
	o.Progress = p.show
	report, err := d.letters.Import(ctx, file, o)
	p.end()
	return d.printResult("Imported", report, err)
}

// adopt sets the subscription to the one that dlqcommand.Adopt chooses.
func (d *dlq) adopt(ctx context.Context) error {
	info, err := topicNamed(ctx, d.api, d.topic)
	if errors.Is(err, deadletter.ErrNoTopic) { // the verb reports it
		return nil
	}
	if err != nil {
		return err
	}
	all := make([]dlqcommand.Subscription, 0, len(info.Subscriptions))
	for _, s := range info.Subscriptions {
		all = append(all, dlqcommand.Subscription{Name: s.Name, Consumers: s.Consumers})
	}
	name := dlqcommand.Adopt(d.topic, d.anyTopic, all, func(name string) bool {
		journal, err := topicNamed(ctx, d.api, d.topic+"-"+name)
		return err == nil && len(journal.Subscriptions) > 0
	})
	if name != "" {
		d.subscription, d.adopted = name, true
	}
	return nil
}

// printAdopted prints the name of the subscription, if adopt chose it.
func (d *dlq) printAdopted() {
	if d.adopted {
		fmt.Fprintf(d.stdout, "Chose subscription %s, which has no consumer.\n", clean(d.ownSub()))
	}
}

// printOthers prints the other subscriptions that have no consumer and keep letters. Without this the user might
// not notice that they are never emptied.
func (d *dlq) printOthers(ctx context.Context, advice string) {
	info, err := topicNamed(ctx, d.api, d.topic)
	if err != nil {
		return // without the advice
	}
	for _, s := range info.Subscriptions {
		if s.Name != d.ownSub() && s.Backlog > 0 && s.Consumers == 0 {
			name := clean(s.Name)
			fmt.Fprintf(d.stdout, "Subscription %s also keeps %s, unread: "+advice+".\n", name, entries(s.Backlog),
				name)
		}
	}
}

func entries(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return count(n) + " entries"
}
