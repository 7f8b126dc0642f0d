// Package inbox makes the effects of a message happen once, in the user's own SQL database.
//
// A broker delivers a message at least once. If the effects of a message are rows of a database, a receipt of the
// message can be a row of the same transaction: both are committed, or neither is. An Inbox wraps the function that
// handles a message:
//
//	w, err := worker.New(consumer, box.Handler(func(ctx context.Context, tx *sql.Tx, msg pulsar.Message) error {
//		_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance + 1 WHERE id = $1", msg.Key())
//		return err
//	}))
//
// The handler begins a transaction, inserts the receipt, calls the function, commits, and returns nil, so that the
// Worker acknowledges the message. If the database has the receipt already, it has the effects, too: the handler
// returns nil without calling the function. After an error or a panic of the function, or if the process dies, the
// database has neither the receipt nor the effects, and the message comes back.
//
// A redelivery, a retry from the retry topic and a replayed dead letter have the receipt of the first message: see
// [Key]. A message that a producer published twice has two IDs; [WithKey] uses the producer's own ID instead.
//
// Effects outside the transaction, such as an HTTP request or a mail, may still happen more than once. Send [Key] along
// with these, as their idempotency key.
package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/worker"
)

const (
	// DefaultTable is the default of WithTable.
	DefaultTable = "redelivery_inbox"
	// DefaultPruning is the default of WithPruning: 30 days.
	DefaultPruning = 30 * 24 * time.Hour
)

// ErrNoTable says that the table of receipts is missing: call Migrate, or create it with the statements of Schema.
// When a handler returns this error, the Worker pauses for ten seconds, and the attempt does not count.
var ErrNoTable = errors.New("inbox: the table of receipts is missing, want Migrate or the statements of Schema")

// ErrTransactionEnded says that the handler's function committed or rolled back its transaction. Only the Inbox may do
// that.
var ErrTransactionEnded = errors.New("inbox: the function ended its transaction itself, want it to return nil or an " +
	"error instead")

// Inbox keeps receipts of messages in a table. New makes one. It is safe for concurrent use; several processes and
// services may share a table.
type Inbox struct {
	db      *sql.DB
	dialect Dialect
	settings
	counts    counts
	nextPrune atomic.Int64 // in Unix seconds
}

type settings struct {
	table        string
	subscription string
	key          func(pulsar.Message) string
	retryTopics  []string
	pruning      time.Duration
	txOptions    *sql.TxOptions
}

// Option configures an Inbox. New checks it: an error satisfies errors.Is with redelivery.ErrInvalidOption.
type Option func(*settings) error

// New returns an Inbox that keeps its receipts in db. The caller closes db. New does not connect, so it accepts a
// dialect that does not fit the database; Migrate and the handlers then fail.
func New(db *sql.DB, dialect Dialect, options ...Option) (*Inbox, error) {
	if db == nil {
		return nil, invalid("New's db", "nil", "a *sql.DB")
	}
	if dialect.dialect == nil {
		return nil, invalid("New's dialect", dialect, "Postgres, MySQL or SQLite")
	}
	i := &Inbox{db: db, dialect: dialect, settings: settings{table: DefaultTable, pruning: DefaultPruning}}
	for _, option := range options {
		if err := option(&i.settings); err != nil {
			return nil, err
		}
	}
	return i, nil
}

// WithTable (default: DefaultTable) names the table of receipts, with or without a schema: letters, digits and
// underscores, with at most one dot.
func WithTable(name string) Option {
	return func(s *settings) error {
		if !identifier.MatchString(name) {
			return invalid("WithTable", fmt.Sprintf("%q", name),
				"letters, digits and underscores, as in inbox or app.inbox")
		}
		s.table = name
		return nil
	}
}

var identifier = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,50}$`)

// WithSubscription (default: the subscription of the Worker that calls the handler) names the subscription whose
// receipts the Inbox keeps. It is required if no Worker makes the call: for Seen outside of a handler, and in a
// receiving loop of the application. Different subscriptions handle a message independently.
func WithSubscription(name string) Option {
	return func(s *settings) error {
		if name == "" {
			return invalid("WithSubscription", `""`, "the name of a subscription")
		}
		s.subscription = name
		return nil
	}
}

// WithKey (default: Key) identifies messages by key, such as an id that the producer sets as a property. Messages with
// the same key are one message, even if a producer published them twice. A message for which key returns "" is
// identified by Key.
func WithKey(key func(msg pulsar.Message) string) Option {
	return func(s *settings) error {
		if key == nil {
			return invalid("WithKey", "nil", "a function")
		}
		s.key = key
		return nil
	}
}

// WithRetryTopic (default: none) names retry topics of the consumer that do not have the default name
// <topic>-<subscription>-RETRY. A short name means public/default.
func WithRetryTopic(topics ...string) Option {
	return func(s *settings) error {
		for _, topic := range topics {
			if want := topicname.Want(topic); want != "" {
				return invalid("WithRetryTopic", fmt.Sprintf("%q", topic), want)
			}
			s.retryTopics = append(s.retryTopics, topicname.Base(topicname.Full(topic)))
		}
		return nil
	}
}

// WithPruning (default: DefaultPruning) makes the handlers delete receipts that are older than d, at most 200 after a
// message. d is at least a minute, or 0: then only Prune deletes receipts. Choose d longer than the time from a
// message's first delivery to its last, including its retries and the time that its dead letter waits for a replay. A
// message that comes after its receipt was pruned has its effects again.
func WithPruning(d time.Duration) Option {
	return func(s *settings) error {
		if d != 0 && d < time.Minute {
			return invalid("WithPruning", d, "0, or a minute or more")
		}
		s.pruning = d
		return nil
	}
}

// WithTxOptions (default: those of the database) sets the isolation level and the access mode of the transactions.
func WithTxOptions(o sql.TxOptions) Option {
	return func(s *settings) error {
		if o.ReadOnly {
			return invalid("WithTxOptions's ReadOnly", true, "false: the receipt is written")
		}
		s.txOptions = &o
		return nil
	}
}

func invalid(option string, value any, want string) error {
	return fmt.Errorf("%w: inbox: %s is %v, want %s", redelivery.ErrInvalidOption, option, value, want)
}

// Key returns the key of a message: the result of WithKey's function if it is not "", else the result of the function
// Key.
func (i *Inbox) Key(msg pulsar.Message) string {
	if i.key != nil {
		if k := i.key(msg); k != "" {
			return "key " + k // a topic's name never begins like that
		}
	}
	return keyOf(msg, i.retryTopics)
}

// receipt returns the receipt of a message in the context of a handler.
func (i *Inbox) receipt(ctx context.Context, msg pulsar.Message) ([]byte, error) {
	subscription := i.subscription
	if subscription == "" {
		subscription = worker.Subscription(ctx)
	}
	if subscription == "" {
		return nil, errors.New("inbox: no Worker called the handler, so the subscription is not known, want " +
			"WithSubscription")
	}
	return receiptOf(subscription, i.Key(msg)), nil
}

// Stats are the counters of an Inbox since New.
type Stats struct {
	Transactions uint64 // committed with the effects of one message or of a batch
	Receipts     uint64 // messages whose effects were committed
	Duplicates   uint64 // messages that have the key of an earlier one, and for which the function was not called
	Retries      uint64 // transactions that began again after a deadlock, a serialization failure or a busy database
	Pruned       uint64 // receipts that were deleted
	PruneErrors  uint64 // failed attempts of handlers to delete old receipts; errors of Prune do not count
}

type counts struct{ transactions, receipts, duplicates, retries, pruned, pruneErrors atomic.Uint64 }

// Stats returns the counters.
func (i *Inbox) Stats() Stats {
	c := &i.counts
	return Stats{c.transactions.Load(), c.receipts.Load(), c.duplicates.Load(), c.retries.Load(), c.pruned.Load(),
		c.pruneErrors.Load()}
}
