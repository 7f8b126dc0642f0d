package ui

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/internal/waiting"
)

// attempts returns the deliveries of a letter's original message, from the log of attempts, or why there are none.
func (h *Handler) attempts(ctx context.Context, l *deadletter.Letter) (all []property, why string) {
	var ledger, entry int64
	partition := -1
	if n, _ := fmt.Sscanf(l.OriginID, "%d:%d:%d", &ledger, &entry, &partition); n < 2 {
		return nil, "The letter does not say which message it was."
	}
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	var events []attempts.Event
	topic, err := waiting.Find(ctx, h.api, attempts.Topic(l.Origin, l.Subscription))
	if err == nil {
		events, err = attempts.History(ctx, h.o.Client, topic, func(k attempts.Key) bool {
			return k.Ledger == ledger && k.Entry == entry && topicname.Base(k.Topic) == topicname.Base(l.Origin) &&
				(partition < 0 || waiting.PartitionOf(k.Topic) == partition)
		})
	}
	switch {
	case admin.NotFound(err):
		return nil, "There is no log of attempts of " + short(l.Origin) + " / " + show(l.Subscription) + "."
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Sprintf("The log of attempts was not read within %v.", openLimit)
	case err != nil:
		return nil, errorText(err)
	case len(events) == 0:
		return nil, "The log of attempts has nothing about this message: it failed only once, or too long ago."
	}
	for _, e := range events {
		all = append(all, property{clock(e.Written), delivery(e)})
	}
	return all, ""
}

// delivery describes a record of the log.
func delivery(e attempts.Event) string {
	text := ""
	if e.Index > 0 {
		text = fmt.Sprintf("message %d of its batch: ", e.Index)
	}
	by := show(e.Name)
	if by == "" {
		by = e.Session.String()
	}
	switch {
	case e.Settled:
		return text + "settled, or forgotten"
	case e.Begun != 0:
		text += "in a handler of " + by
	case e.Count == 0:
		text += "put off by " + by
	default:
		text += fmt.Sprintf("delivery %d failed at %s", e.Count, by)
	}
	if e.Cause != "" && e.Begun == 0 {
		text += ": " + show(e.Cause)
	}
	if wait := e.Due.Sub(e.Written).Round(100 * time.Millisecond); wait > 0 && e.Begun == 0 {
		text += ", next after " + length(wait)
	}
	if e.Crashes > 0 {
		text += ", " + fmt.Sprintf("crashed its process %d times", e.Crashes)
	}
	return text
}
