// Package attempts keeps what is known of messages that failed in a Pulsar topic, so that it outlives the process: how often each was
// delivered, until when it waits and why, and which messages ended the processes that handled them.
//
// redelivery.WithAttemptLog uses it; programs need it to look into a log or to forget a message. Log is the log of one subscription. All
// its consumers write to one topic and read it to the end before they begin, and from then on as it grows. A record that is written is
// known to the others a few milliseconds later.
//
// The rules by which records merge are in merge.go and state.go, which know no broker; those of the bytes are in frame.go.
package attempts

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

// TopicSuffix ends the name of each log's topic.
const TopicSuffix = "-ATTEMPTS"

// Topic returns the name of the log of a subscription: <topic>-<subscription>-ATTEMPTS. Of a partition it is that of the partitioned topic.
func Topic(topic, subscription string) string {
	return publishing.BaseTopic(topic) + "-" + subscription + TopicSuffix
}

// Key names a message, on whatever connection it comes.
type Key struct {
	Topic         string // with its partition
	Ledger, Entry int64  // of its id
	Index         int32  // in its batch; 0 if it is in none
}

// KeyOf returns the key of a message that was received. It panics if msg does.
func KeyOf(msg pulsar.Message) Key { return KeyFor(msg.Topic(), msg.ID()) }

// KeyFor returns the key of a message of a topic.
func KeyFor(topic string, id pulsar.MessageID) Key {
	return Key{topic, id.LedgerID(), id.EntryID(), max(0, id.BatchIdx())}
}

// String returns the topic, a space, and the id as ParseKey reads it.
func (k Key) String() string {
	return fmt.Sprintf("%s %d:%d:%d", k.Topic, k.Ledger, k.Entry, k.Index)
}

// ParseID returns ledger, entry and index of an id such as "12:3:0" or "12:3", as the broker's tools and the log's records write it.
func ParseID(id string) (ledger, entry int64, index int32, err error) {
	parts := strings.Split(id, ":")
	format := "%d:%d"
	into := []any{&ledger, &entry}
	if len(parts) == 3 {
		format, into = "%d:%d:%d", append(into, &index)
	}
	if n, err := fmt.Sscanf(id, format, into...); err != nil || n != len(parts) || ledger < 0 || entry < 0 || index < 0 {
		return 0, 0, 0, fmt.Errorf("attempts: the message id is %q, want LEDGER:ENTRY or LEDGER:ENTRY:INDEX", id)
	}
	return ledger, entry, index, nil
}

// SessionID names a session: a Log from Open to Close, of one process. No two have the same.
type SessionID uint64

// String returns 16 hexadecimal digits.
func (s SessionID) String() string { return fmt.Sprintf("%016x", uint64(s)) }

// Record is what a log says of a message.
type Record struct {
	Key
	Count   uint32    // how often it was delivered
	Crashes uint32    // how many sessions it has ended; see Log.KeepAlive
	Due     time.Time // when it may be delivered again, by this machine's clock
	Written time.Time // when the log was told last, by this machine's clock
	Cause   string    // why it failed; "" if nobody said
	Session SessionID // which wrote it
	Begun   SessionID // which has it in a handler, or had when it ended; 0 for none
}

// Session is a consumer that writes to a log, or did.
type Session struct {
	ID    SessionID     // as in records
	Name  string        // of its consumer
	Since time.Time     // by this machine's clock
	Heard time.Time     // when it last wrote
	Lease time.Duration // for how long it lives without being heard; 0 if it does not say
	State SessionState  // whether it lives
}

// SessionState says what is known of a session.
type SessionState string

// States of sessions. One without a lease is Live until it ends.
const (
	Live  SessionState = "live"
	Ended SessionState = "ended" // and said so
	Lost  SessionState = "lost"  // it has not been heard for its lease: it crashed, or cannot reach the log
)

// Options are those of a Log. Only Topic has to be set.
type Options struct {
	// Topic is the log's. It is created if the broker allows that. Of a partitioned topic the first partition is used.
	Topic string
	// Name is what Sessions calls this one. Default: the host's name, a slash and the process id.
	Name string
	// Retention is for how long past its due time a record is kept of which nothing more is heard. Default: one day.
	Retention time.Duration
	// Logger is told when the log fails and when it is back. Default: slog.Default().
	Logger *slog.Logger
	// Failed is called with what goes wrong, from a goroutine of the Log with no lock held; nil for none.
	Failed func(error)
	// ReadOnly has the Log write nothing, and be no session of its own. It reads to the end that the topic has when it begins.
	ReadOnly bool
}

// Errors of this package, for errors.Is.
var (
	ErrClosed   = errors.New("attempts: the log is closed")
	ErrReadOnly = errors.New("attempts: the log was opened to be read only")
)

// DefaultRetention is the default of Options.Retention.
const DefaultRetention = 24 * time.Hour
