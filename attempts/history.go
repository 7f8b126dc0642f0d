package attempts

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/upstream"
)

// Event is a record of a message as it was written to a log. Its times are by the broker's clock if the broker adds its
// time to messages, or else by the writer's.
type Event struct {
	Record
	Name    string // of the session that wrote it; "" if the log does not say
	Settled bool   // the message was settled or forgotten; Count is 0, Cause is "", and Due is Written
}

// History reads the topic of a log, and returns the events of all wanted messages, the oldest first. The broker deletes
// the oldest part of a long log, so the first events may be missing. The broker may create a topic that does not exist.
func History(ctx context.Context, client pulsar.Client, topic string, wanted func(Key) bool) (all []Event, err error) {
	topic, err = upstream.Within(ctx, func() (string, error) { return firstPartition(client, topic) }, nil)
	if err != nil {
		return nil, fmt.Errorf("attempts: %w", err)
	}
	reader, err := upstream.Within(ctx, func() (pulsar.Reader, error) {
		return client.CreateReader(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.EarliestMessageID(),
			Decryption: asItIs()})
	}, pulsar.Reader.Close)
	if err != nil {
		return nil, fmt.Errorf("attempts: reading %s: %w", topic, err)
	}
	r := &upstream.TopicReader{Reader: reader}
	defer r.Close()
	names := map[SessionID]string{}
	for last, end := (position{}), (position{}); ; {
		if end, err = endAfter(ctx, r, last, end); err != nil {
			return nil, fmt.Errorf("attempts: asking for the last message of %s: %w", topic, err)
		}
		if !last.before(end) {
			break
		}
		msg, err := r.Next(ctx)
		if err != nil {
			return nil, fmt.Errorf("attempts: reading %s: %w", topic, err)
		}
		last = positionOf(msg.ID())
		f, err := decode(msg.Payload())
		if err != nil { // a Log skips the message too
			continue
		}
		if f.has(begins) {
			names[f.session] = f.name
		}
		for _, s := range f.sessions {
			names[s.id] = s.name
		}
		written := readAt(time.Now(), f, msg).time
		for _, c := range f.changes {
			if !wanted(c.Key) || f.has(copies) && isKnown(all, c) {
				continue
			}
			all = append(all, Event{Settled: c.removed, Record: Record{c.Key, c.count, c.crashes,
				time.UnixMilli(written + c.delay), time.UnixMilli(written - c.age), c.cause, c.session, c.begun}})
		}
	}
	for i := range all {
		all[i].Name = names[all[i].Session]
	}
	return all, nil
}

// isKnown reports whether a copy repeats an event.
func isKnown(all []Event, c change) bool {
	for _, e := range all {
		if e.Key == c.Key && e.Count == c.count && e.Crashes == c.crashes {
			return true
		}
	}
	return false
}
