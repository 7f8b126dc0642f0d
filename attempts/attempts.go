// Package attempts keeps a log of failed messages in a Pulsar topic, so that the log outlives the process. For each
// message the log has the number of deliveries, the cause of the last failure, the time until which the message waits,
// and the number of processes that it crashed.
//
// redelivery.WithAttemptLog uses this package. Programs need it only to look into a log or to forget a message. A [Log]
// is the log of one subscription. All consumers of the subscription write to one topic. They read it to its end before
// they begin, and then follow it, so they know a new record after a few milliseconds.
//
// Records merge by the rules in merge.go and state.go, which use no broker. frame.go has their encoding.
package attempts

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// Topic returns the topic of a subscription's log: <topic>-<subscription>-ATTEMPTS, without the partition.
func Topic(topic, subscription string) string {
	return topicname.Base(topic) + "-" + subscription + topicname.AttemptsSuffix
}

// Key identifies a message on every connection.
type Key struct {
	Topic         string // with its partition
	Ledger, Entry int64  // of the message's ID
	Index         int32  // in the batch; 0 or less if the message is in none
}

// KeyOf returns the key of a message that was received. It panics if msg does.
func KeyOf(msg pulsar.Message) Key {
	id := msg.ID()
	return Key{msg.Topic(), id.LedgerID(), id.EntryID(), max(0, id.BatchIdx())}
}

// String returns the topic, a space, and the numbers of ledger, entry and index: "persistent://public/default/orders
// 12:3:0".
func (k Key) String() string {
	return fmt.Sprintf("%s %d:%d:%d", k.Topic, k.Ledger, k.Entry, k.Index)
}

// SessionID names a session: a Log of one process, from Open to Close. No two sessions have the same ID.
type SessionID uint64

// String returns 16 hexadecimal digits.
func (s SessionID) String() string { return fmt.Sprintf("%016x", uint64(s)) }

// Record is a message in a log.
type Record struct {
	Key
	Count   uint32    // how often the message was delivered
	Crashes uint32    // number of sessions that the message crashed; see Log.KeepAlive and Log.Crashes
	Due     time.Time // when it may be delivered again, by this machine's clock
	Written time.Time // when the log last got a record of the message, by this machine's clock
	Cause   string    // why the message failed; "" if that is not known
	Session SessionID // session that wrote the record
	Begun   SessionID // session that has the message in a handler, or had it when the session ended; 0 for none
}

// Session is a consumer that writes to a log, or has written to it.
type Session struct {
	ID    SessionID     // as in records
	Name  string        // of its consumer
	Since time.Time     // when the session began, by this machine's clock
	Heard time.Time     // when the session last wrote
	Lease time.Duration // how long the session may be silent before it is lost; 0 if unknown
	State SessionState  // whether it lives
}

// SessionState says whether a session is alive.
type SessionState string

// States of sessions. A session without a lease is Live until it ends.
const (
	Live  SessionState = "live"
	Ended SessionState = "ended" // it wrote that it ended
	Lost  SessionState = "lost"  // it has not been heard for its lease: it crashed, or cannot reach the log
)

// Options configures a Log.
type Options struct {
	// Topic is the topic of the log. It is created if the broker allows that. If it is partitioned, its first partition
	// is used. Required.
	Topic string
	// Name is this session's name in Sessions. Default: the host's name, a slash and the process id.
	Name string
	// Retention is how long after its due time a record stays in the log if nothing more happens to its message.
	// Default: one day.
	Retention time.Duration
	// Logger gets a line when the log fails and when it works again. Default: slog.Default().
	Logger *slog.Logger
	// Failed is called with each error, from a goroutine of the Log with no lock held. The Log may not reconnect until
	// Failed returns, so Failed must not wait for the Log. Default: none.
	Failed func(error)
	// ReadOnly makes the Log write nothing: it is no session, and methods that would write do nothing or return
	// ErrReadOnly. Ready then also waits until the Log knows which sessions live. If the log suggests that a session is
	// lost, but a wrong clock may be the reason, Ready waits one more lease for that session. Default: false.
	ReadOnly bool
}

// Errors of this package, for errors.Is.
var (
	ErrClosed   = errors.New("attempts: the log is closed")
	ErrReadOnly = errors.New("attempts: the log was opened read-only")
)

// defaultRetention is the default of Options.Retention.
const defaultRetention = 24 * time.Hour
