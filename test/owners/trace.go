package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
)

// trace notes what happened in a trial, for -trace. A nil one notes nothing.
type trace struct {
	mu  sync.Mutex
	all []event // what concerns no single message
	of  map[string][]event
}

type event struct {
	at             time.Time
	who, what, add string
}

func (t *trace) note(message, who, what string, add ...any) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := (event{time.Now(), who, what, strings.TrimSpace(fmt.Sprintln(add...))}); message == "" {
		t.all = append(t.all, e)
	} else {
		t.of[message] = append(t.of[message], e)
	}
}

// tell writes what happened to some messages, and meanwhile to all.
func (t *trace) tell(to io.Writer, title string, messages ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var events []event
	for _, m := range messages {
		for _, e := range t.of[m] {
			events = append(events, event{e.at, e.who, m[strings.LastIndex(m, "/")+1:] + " " + e.what, e.add})
		}
	}
	if len(events) == 0 {
		return
	}
	byTime := func(a, b event) int { return a.at.Compare(b.at) }
	from, until := slices.MinFunc(events, byTime).at.Add(-time.Second), slices.MaxFunc(events, byTime).at.Add(time.Second)
	for _, e := range t.all {
		if e.at.After(from) && e.at.Before(until) {
			events = append(events, e)
		}
	}
	slices.SortStableFunc(events, byTime)
	fmt.Fprintln(to, "\n##", title)
	for _, e := range events {
		fmt.Fprintf(to, "%s %4s %s %s\n", e.at.Format("04:05.000"), e.who, e.what, e.add)
	}
}

// observer notes what a Consumer tells.
func (t *trace) observer(who string) redelivery.Observer {
	if t == nil {
		return redelivery.Observer{}
	}
	of := func(what string) func(redelivery.Event) {
		return func(e redelivery.Event) { t.note(name(e.Topic, e.ID), who, what) }
	}
	return redelivery.Observer{
		Delivered: func(e redelivery.Delivered) { t.note(name(e.Topic, e.ID), who, "delivered", e.Count, e.Cause) },
		Settled:   func(e redelivery.Settled) { t.note(name(e.Topic, e.ID), who, string(e.Outcome), e.Err) },
		Buffered:  of("buffered"), Dropped: of("dropped"), Swallowed: of("swallowed"), Asked: of("asked for"),
	}
}

// BecameActive is told on Failover.
func (l listener) BecameActive(_ pulsar.Consumer, topic string, _ int32) {
	l.note("", l.who, "BECAME ACTIVE", topic)
}

// BecameInactive is told on Failover.
func (l listener) BecameInactive(_ pulsar.Consumer, topic string, _ int32) {
	l.note("", l.who, "BECAME INACTIVE", topic)
}

type listener struct {
	*trace
	who string
}

// name is that of a message.
func name(topic string, id pulsar.MessageID) string {
	return fmt.Sprintf("%s %d:%d", topic[strings.LastIndex(topic, "/")+1:], id.LedgerID(), id.EntryID())
}
