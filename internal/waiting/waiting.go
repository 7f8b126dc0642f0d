// Package waiting opens a log of attempts and lists its messages for people: for command redelivery attempts and for
// package ui.
package waiting

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// Find returns the topic of a log, or its first partition if it is partitioned. An error is the admin API's: if
// admin.NotFound returns true for it, there is no log. Find does not ask a client, since the client would create the
// topic when it asks for partitions or opens a reader.
func Find(ctx context.Context, api admin.API, topic string) (string, error) {
	var metadata struct{ Partitions int }
	err := api.Call(ctx, http.MethodGet, admin.Topic(topic)+"/partitions?checkAllowAutoCreation=false", nil, &metadata)
	if metadata.Partitions > 0 {
		return topic + "-partition-0", nil
	}
	if !admin.NotFound(err) {
		err = api.Call(ctx, http.MethodGet, admin.Topic(topic)+"/stats", nil, nil)
	}
	return topic, err
}

// Open opens a log and reads it to its end.
func Open(ctx context.Context, client pulsar.Client, o attempts.Options) (*attempts.Log, error) {
	log, err := attempts.Open(client, o)
	if err != nil {
		return nil, err
	}
	if err := log.Ready(ctx); err != nil {
		log.Close()
		return nil, err
	}
	return log, nil
}

// Message is a record of the log.
type Message struct {
	Topic   string    `json:"topic"`
	ID      string    `json:"id"` // with the index if the log has other messages of the batch
	Count   uint32    `json:"deliveries"`
	Crashes uint32    `json:"crashes,omitempty"`
	Since   time.Time `json:"written"`
	Due     time.Time `json:"due"`
	Cause   string    `json:"cause,omitempty"`
	Handled string    `json:"begunBy,omitempty"`

	Key attempts.Key `json:"-"`
}

// OnlyBegun reports whether a message neither failed, nor was snoozed, nor crashed its consumer: it is, or was, in a
// handler.
func (m Message) OnlyBegun() bool {
	snoozed := m.Due.After(m.Since.Add(time.Millisecond))
	return m.Count == 0 && m.Crashes == 0 && !snoozed
}

// Session is a consumer that writes to the log or has written to it.
type Session struct {
	ID    string    `json:"id"`
	Name  string    `json:"name"`
	State string    `json:"state"`
	Since time.Time `json:"since"`
	Heard time.Time `json:"heard"`
}

// List returns the messages and the sessions of a log. Messages that crashed consumers come first, then those that were
// delivered most often. The oldest session comes first.
func List(log *attempts.Log) ([]Message, []Session) {
	messages, sessions := []Message{}, []Session{}
	names := map[attempts.SessionID]string{}
	for _, s := range log.Sessions() {
		names[s.ID] = cmp.Or(s.Name, s.ID.String())
		sessions = append(sessions, Session{s.ID.String(), s.Name, stateOf(s), s.Since, s.Heard})
	}
	records := log.Records()
	type entry struct {
		topic         string
		ledger, entry int64
	}
	batches := map[entry]bool{}
	for _, r := range records {
		if r.Index > 0 {
			batches[entry{r.Topic, r.Ledger, r.Entry}] = true
		}
	}
	for _, r := range records {
		id := fmt.Sprintf("%d:%d:%d", r.Ledger, r.Entry, PartitionOf(r.Topic))
		if batches[entry{r.Topic, r.Ledger, r.Entry}] {
			id += fmt.Sprintf(":%d", r.Index)
		}
		m := Message{r.Topic, id, r.Count, r.Crashes, r.Written, r.Due, r.Cause, "", r.Key}
		if r.Begun != 0 {
			m.Handled = cmp.Or(names[r.Begun], r.Begun.String())
		}
		messages = append(messages, m)
	}
	slices.SortFunc(messages, func(a, b Message) int {
		return cmp.Or(cmp.Compare(b.Crashes, a.Crashes), cmp.Compare(b.Count, a.Count), a.Due.Compare(b.Due))
	})
	slices.SortFunc(sessions, func(a, b Session) int { return a.Since.Compare(b.Since) })
	return messages, sessions
}

// stateOf returns the state of a session. A session without worker.WithCrashLimit has no lease, so the log cannot show
// whether its process was killed: such a session is open until its consumer is closed.
func stateOf(s attempts.Session) string {
	if s.State == attempts.Live && s.Lease == 0 {
		return "open"
	}
	return string(s.State)
}

// PartitionOf returns the number of the partition in a topic's name, or 0.
func PartitionOf(topic string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(strings.TrimPrefix(topic, topicname.Base(topic)), "-partition-"))
	return n
}
