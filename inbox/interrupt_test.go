package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/pulsar-redelivery/redelivery/inbox"
	"github.com/pulsar-redelivery/redelivery/worker"
	"github.com/pulsar-redelivery/redelivery/worker/workertest"
)

// world has the possible effects of a handler: rows of the tables debit and credit, and mails.
type world struct {
	db    *sql.DB
	box   *inbox.Inbox
	mails []string
}

func newWorld(t testing.TB) *world {
	db, err := workertest.OpenSQL(&sqlite.Driver{},
		"file:"+filepath.Join(t.TempDir(), "db")+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	box, err := inbox.New(db, inbox.SQLite)
	require.NoError(t, err)
	require.NoError(t, box.Migrate(t.Context()))
	for _, statement := range []string{"CREATE TABLE debit (n int)", "CREATE TABLE credit (n int)",
		"CREATE TABLE done (key text PRIMARY KEY)"} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	return &world{db: db, box: box}
}

// mail sends a mail, an effect that no transaction covers.
func (w *world) mail(ctx context.Context, key string) {
	w.mails = append(w.mails, key)
	workertest.Step(ctx)
}

// inTx runs statements in a transaction.
func (w *world) inTx(ctx context.Context, statements ...string) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	return errors.Join(run(ctx, tx, statements...), tx.Commit())
}

func run(ctx context.Context, db interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, statements ...string) error {
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) inInbox(statements ...string) worker.Handler {
	return w.box.Handler(func(ctx context.Context, tx *sql.Tx,
		_ pulsar.Message) error {
		return run(ctx, tx, statements...)
	})
}

// isDone reports whether a handler has noted the message as done.
func (w *world) isDone(ctx context.Context) bool {
	var n int
	_ = w.db.QueryRowContext(ctx, "SELECT count(*) FROM done").Scan(&n)
	return n > 0
}

// wrongEffects lists the effects that did not happen exactly once. A missing mail is not wrong, since not every handler
// sends a mail.
func (w *world) wrongEffects(t testing.TB) (wrong []string) {
	for _, table := range []string{"debit", "credit"} {
		var n int
		require.NoError(t, w.db.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
		if n != 1 {
			wrong = append(wrong, table)
		}
	}
	if len(w.mails) > 1 {
		wrong = append(wrong, "mail")
	}
	return wrong
}

const debit, credit, done = "INSERT INTO debit VALUES (1)", "INSERT INTO credit VALUES (1)", "INSERT INTO done " +
	"VALUES ('7') ON CONFLICT DO NOTHING"

func TestInterruptFindsEffectsThatDoNotHappenOnce(t *testing.T) {
	for name, handler := range map[string]func(*world) worker.Handler{
		"no transaction": func(w *world) worker.Handler {
			return func(ctx context.Context, _ pulsar.Message) error { return run(ctx, w.db, debit, credit) }
		},
		"a transaction without receipt": func(w *world) worker.Handler {
			return func(ctx context.Context, _ pulsar.Message) error { return w.inTx(ctx, debit, credit) }
		},
		"two transactions": func(w *world) worker.Handler {
			return func(ctx context.Context, _ pulsar.Message) error {
				return errors.Join(w.inTx(ctx, debit), w.inTx(ctx, credit))
			}
		},
		"an effect before the inbox": func(w *world) worker.Handler {
			return func(ctx context.Context, msg pulsar.Message) error {
				return errors.Join(run(ctx, w.db, debit), w.inInbox(credit)(ctx, msg))
			}
		},
		"an effect after the inbox": func(w *world) worker.Handler {
			return func(ctx context.Context, msg pulsar.Message) error {
				return errors.Join(w.inInbox(credit)(ctx, msg), run(ctx, w.db, debit))
			}
		},
		"a note before the effect": func(w *world) worker.Handler {
			return func(ctx context.Context, _ pulsar.Message) error {
				if w.isDone(ctx) {
					return nil
				}
				return errors.Join(run(ctx, w.db, done), w.inTx(ctx, debit, credit))
			}
		},
		"a note after the effect": func(w *world) worker.Handler {
			return func(ctx context.Context, _ pulsar.Message) error {
				if w.isDone(ctx) {
					return nil
				}
				return errors.Join(w.inTx(ctx, debit, credit), run(ctx, w.db, done))
			}
		},
		"a mail in the transaction": func(w *world) worker.Handler {
			return w.box.Handler(func(ctx context.Context, tx *sql.Tx, _ pulsar.Message) error {
				w.mail(ctx, "7")
				return run(ctx, tx, debit, credit)
			})
		},
		"a mail before the inbox": func(w *world) worker.Handler {
			return func(ctx context.Context, msg pulsar.Message) error {
				w.mail(ctx, "7")
				return w.inInbox(debit, credit)(ctx, msg)
			}
		},
		"a handler that commits half": func(w *world) worker.Handler {
			return w.box.Handler(func(ctx context.Context, tx *sql.Tx, _ pulsar.Message) error {
				if err := errors.Join(run(ctx, tx, debit), tx.Commit()); err != nil {
					return err
				}
				return run(ctx, w.db, credit)
			})
		},
	} {
		t.Run(name, func(t *testing.T) { require.NotEmpty(t, interruptAll(t, handler)) })
	}
}

func TestInterruptFindsNothingWhereEffectsHappenOnce(t *testing.T) {
	for name, handler := range map[string]func(*world) worker.Handler{
		"inbox": func(w *world) worker.Handler { return w.inInbox(debit, credit) },
		"a receipt without an inbox": func(w *world) worker.Handler {
			return func(ctx context.Context, _ pulsar.Message) error {
				if w.isDone(ctx) {
					return nil
				}
				return w.inTx(ctx, done, debit, credit)
			}
		},
		"a mail with an idempotency key": func(w *world) worker.Handler {
			return w.box.Handler(func(ctx context.Context, tx *sql.Tx, msg pulsar.Message) error {
				if key := inbox.Key(msg); len(w.mails) == 0 || w.mails[0] != key { // the receiver knows old keys
					w.mail(ctx, key)
				}
				return run(ctx, tx, debit, credit)
			})
		},
	} {
		t.Run(name, func(t *testing.T) { require.Empty(t, interruptAll(t, handler)) })
	}
}

// interruptAll interrupts a handler after each of its steps, and returns the wrong effects.
func interruptAll(t *testing.T, handler func(*world) worker.Handler) (wrong []string) {
	var w *world
	workertest.Interrupt(t, &pulsar.ProducerMessage{Payload: []byte("7")}, func(t testing.TB) worker.Handler {
		w = newWorld(t)
		return handler(w)
	}, func(t testing.TB) { wrong = append(wrong, w.wrongEffects(t)...) })
	return wrong
}
