package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/inbox"
	"github.com/pulsar-redelivery/redelivery/worker"
)

func (db database) handler(box *inbox.Inbox) worker.Handler {
	return box.Handler(func(ctx context.Context, tx *sql.Tx, msg pulsar.Message) error {
		return db.addEffect(ctx, tx, string(msg.Payload()))
	})
}

func TestHandlerOfRedeliveredMessageHasNoSecondEffect(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, db database) {
		box := db.newBox(t)
		seen, err := box.Seen(t.Context(), numbered(0))
		require.NoError(t, err)
		require.False(t, seen)
		for range 3 {
			require.NoError(t, db.handler(box)(t.Context(), numbered(0)))
		}
		effects, receipts := db.effects(t)
		require.Equal(t, map[string]int{"a": 1}, effects)
		require.Equal(t, 1, receipts)
		require.Equal(t, inbox.Stats{Transactions: 1, Receipts: 1, Duplicates: 2}, box.Stats())
		seen, err = box.Seen(t.Context(), numbered(0))
		require.NoError(t, err)
		require.True(t, seen)
	})
}

func TestHandlerOfOtherSubscriptionHasItsOwnEffect(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, db database) {
		require.NoError(t, db.handler(db.newBox(t))(t.Context(), numbered(0)))
		require.NoError(t, db.handler(db.newBox(t, inbox.WithSubscription("another")))(t.Context(), numbered(0)))
		effects, receipts := db.effects(t)
		require.Equal(t, map[string]int{"a": 2}, effects)
		require.Equal(t, 2, receipts)
	})
}

func TestHandlerThatFailsLeavesNeitherEffectNorReceipt(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, db database) {
		box := db.newBox(t)
		errNoStock := errors.New("no stock")
		failing := func(end func() error) worker.Handler {
			return box.Handler(func(ctx context.Context, tx *sql.Tx, msg pulsar.Message) error {
				require.NoError(t, db.addEffect(ctx, tx, "a"))
				return end()
			})
		}
		require.Equal(t, errNoStock, failing(func() error { return errNoStock })(t.Context(), numbered(0)))
		require.PanicsWithValue(t, "bug",
			func() { _ = failing(func() error { panic("bug") })(t.Context(), numbered(0)) })
		effects, receipts := db.effects(t)
		require.Empty(t, effects)
		require.Zero(t, receipts)
		require.NoError(t, db.handler(box)(t.Context(), numbered(0)))
	})
}

func TestConcurrentHandlersOfOneMessageHaveOneEffect(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, db database) {
		box := db.newBox(t)
		begun, end := make(chan struct{}, 8), make(chan struct{})
		slow := box.Handler(func(ctx context.Context, tx *sql.Tx, msg pulsar.Message) error {
			begun <- struct{}{}
			<-end
			return db.addEffect(ctx, tx, "a")
		})
		var group errgroup.Group
		for range 4 {
			group.Go(func() error { return slow(t.Context(), numbered(0)) })
		}
		<-begun
		// the others wait for the receipt; however long they take, the result is the same
		time.Sleep(50 * time.Millisecond)
		close(end)
		require.NoError(t, group.Wait())
		effects, receipts := db.effects(t)
		require.Equal(t, map[string]int{"a": 1}, effects)
		require.Equal(t, 1, receipts)
		require.Empty(t, begun)
	})
}

func TestBatchHandlerCommitsNewMessagesInOneTransaction(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, db database) {
		box := db.newBox(t)
		require.NoError(t, db.handler(box)(t.Context(), numbered(1)))
		handler := box.BatchHandler(db.addEffects)
		require.NoError(t, handler(t.Context(), append(batchOf(3), numbered(0))))
		require.NoError(t, handler(t.Context(), batchOf(3)))
		effects, receipts := db.effects(t)
		require.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1}, effects)
		require.Equal(t, 3, receipts)
		require.Equal(t, uint64(2), box.Stats().Transactions)
	})
}

func TestBatchHandlerThatFailsForSomeCommitsTheOthers(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, db database) {
		box := db.newBox(t)
		require.NoError(t, db.handler(box)(t.Context(), numbered(0)))
		bad, later := worker.Permanent(errors.New("no such account")), errors.New("locked")
		err := box.BatchHandler(func(ctx context.Context, tx *sql.Tx, msgs []pulsar.Message) error {
			require.NoError(t, db.addEffects(ctx, tx, msgs))
			failed := worker.BatchError{}
			for i, msg := range msgs {
				switch string(msg.Payload()) {
				case "b":
					failed[i] = bad
				case "d":
					failed[i] = later
				}
			}
			return failed
		})(t.Context(), append(batchOf(5), numbered(1)))
		require.Equal(t, worker.BatchError{1: bad, 3: later, 5: bad}, err)
		effects, receipts := db.effects(t)
		require.Equal(t, map[string]int{"a": 1, "c": 1, "e": 1}, effects)
		require.Equal(t, 3, receipts)
	})
}

func TestBatchHandlerThatFailsForAllLeavesNeitherEffectsNorReceipts(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, db database) {
		box := db.newBox(t)
		errNoStock := errors.New("no stock")
		handler := box.BatchHandler(func(ctx context.Context, tx *sql.Tx, msgs []pulsar.Message) error {
			require.NoError(t, db.addEffects(ctx, tx, msgs))
			return errNoStock
		})
		require.Equal(t, errNoStock, handler(t.Context(), batchOf(3)))
		wrong := worker.BatchError{7: errNoStock}
		require.Equal(t, error(wrong),
			box.BatchHandler(func(context.Context, *sql.Tx, []pulsar.Message) error { return wrong })(t.Context(),
				batchOf(3)))
		_, receipts := db.effects(t)
		require.Zero(t, receipts)

		require.NoError(t, db.handler(box)(t.Context(), numbered(0)))
		require.Equal(t, worker.BatchError{1: errNoStock, 2: errNoStock}, handler(t.Context(), batchOf(3)))
	})
}

// Postgres refuses the statements of all later messages.
func TestMessageWithFailedStatementFailsAloneInItsBatch(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, db database) {
		box := db.newBox(t)
		err := box.BatchHandler(func(ctx context.Context, tx *sql.Tx, msgs []pulsar.Message) error {
			failed := worker.BatchError{}
			for n, msg := range msgs {
				var err error
				if name := string(msg.Payload()); name == "b" || name == "d" {
					_, err = tx.ExecContext(ctx, "INSERT INTO effect VALUES ('x', NULL)")
				} else {
					err = db.addEffect(ctx, tx, name)
				}
				if err != nil {
					failed[n] = worker.Permanent(err)
				}
			}
			return failed
		})(t.Context(), batchOf(6))
		each, ok := worker.AsBatchError(err)
		require.True(t, ok)
		require.ElementsMatch(t, []int{1, 3}, slices.Collect(maps.Keys(each)))
		for _, err := range each {
			require.NotContains(t, err.Error(), "transaction is aborted")
		}
		effects, receipts := db.effects(t)
		require.Equal(t, map[string]int{"a": 1, "c": 1, "e": 1, "f": 1}, effects)
		require.Equal(t, 4, receipts)
	})
}

func TestDuplicatesOfFailedBatchAreNotCounted(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, db database) {
		box := db.newBox(t)
		msgs := append(batchOf(3), numbered(0))
		require.Error(t, box.BatchHandler(func(context.Context, *sql.Tx, []pulsar.Message) error {
			return errors.New("no stock")
		})(t.Context(), msgs))
		require.Zero(t, box.Stats())
		handler := box.BatchHandler(db.addEffects)
		require.NoError(t, handler(t.Context(), msgs))
		require.Equal(t, inbox.Stats{Transactions: 1, Receipts: 3, Duplicates: 1}, box.Stats())
		require.NoError(t, handler(t.Context(), append(msgs, numbered(3))))
		require.Equal(t, inbox.Stats{Transactions: 2, Receipts: 4, Duplicates: 5}, box.Stats())
	})
}

func TestHandlerThatEndsItsTransactionReturnsErrTransactionEnded(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, db database) {
		box := db.newBox(t)
		rollsBack := box.Handler(func(_ context.Context, tx *sql.Tx, _ pulsar.Message) error { return tx.Rollback() })
		require.ErrorIs(t, rollsBack(t.Context(), numbered(0)), inbox.ErrTransactionEnded)
		commits := box.Handler(func(ctx context.Context, tx *sql.Tx, _ pulsar.Message) error {
			return errors.Join(db.addEffect(ctx, tx, "a"), tx.Commit())
		})
		require.ErrorIs(t, commits(t.Context(), numbered(0)), inbox.ErrTransactionEnded)
		require.NoError(t, commits(t.Context(), numbered(0)), "the effect was committed without its receipt")
		effects, _ := db.effects(t)
		require.Equal(t, map[string]int{"a": 1}, effects)
	})
}

func TestHandlerWhoseContextEndsLeavesNeitherEffectNorReceipt(t *testing.T) {
	for name, afterCancel := range map[string]func(ctx context.Context, tx *sql.Tx, db database) error{
		"before a statement": func(ctx context.Context, tx *sql.Tx, db database) error { return db.addEffect(ctx, tx, "b") },
		"before the commit":  func(context.Context, *sql.Tx, database) error { return nil },
		"after a pause, before the commit": func(context.Context, *sql.Tx, database) error {
			time.Sleep(20 * time.Millisecond) // database/sql rolls back
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEachDatabase(t, func(t *testing.T, db database) {
				box := db.newBox(t)
				ctx, cancel := context.WithCancel(t.Context())
				err := box.Handler(func(ctx context.Context, tx *sql.Tx, _ pulsar.Message) error {
					require.NoError(t, db.addEffect(ctx, tx, "a"))
					cancel()
					return afterCancel(ctx, tx, db)
				})(ctx, numbered(0))
				require.ErrorIs(t, err, context.Canceled)
				require.NoError(t, db.handler(box)(t.Context(), numbered(0)))
				effects, receipts := db.effects(t)
				require.Equal(t, map[string]int{"a": 1}, effects)
				require.Equal(t, 1, receipts)
			})
		})
	}
}

func TestHandlerFailsIfItsContextEndsWhileAnotherHandlesTheMessage(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, db database) {
		box := db.newBox(t)
		require.NoError(t, box.Handler(func(context.Context, *sql.Tx, pulsar.Message) error {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			require.Error(t, db.handler(box)(ctx, numbered(0)))
			return nil
		})(t.Context(), numbered(0)))
		require.NoError(t, db.handler(box)(t.Context(), numbered(0)))
		effects, receipts := db.effects(t)
		require.Empty(t, effects, "a handler whose context had ended, or whose receipt existed, had an effect")
		require.Equal(t, 1, receipts)
	})
}

// MyISAM has no transactions: the receipt of a failed handler would stay, and the message would never be handled.
func TestFailedHandlerLeavesNoReceiptIfMyISAMIsTheDefault(t *testing.T) {
	config, err := mysql.ParseDSN(setting(t, "MYSQL_DSN"))
	require.NoError(t, err)
	config.Params = map[string]string{"default_storage_engine": "MyISAM"}
	db := open(t, inbox.MySQL, "mysql", config.FormatDSN())
	box := db.newBox(t)
	errNoStock := errors.New("no stock")
	require.Equal(t, errNoStock, box.Handler(func(context.Context, *sql.Tx, pulsar.Message) error {
		return errNoStock
	})(t.Context(), numbered(0)))
	seen, err := box.Seen(t.Context(), numbered(0))
	require.NoError(t, err)
	require.False(t, seen)
}

// Postgres rolls back a transaction with a failed statement, even if the client commits it.
func TestHandlerThatIgnoresAnErrorOfPostgresFails(t *testing.T) {
	db := open(t, inbox.Postgres, "pgx", setting(t, "POSTGRES_URL"))
	box := db.newBox(t)
	require.ErrorContains(t, box.Handler(func(ctx context.Context, tx *sql.Tx, _ pulsar.Message) error {
		require.NoError(t, db.addEffect(ctx, tx, "a"))
		_, err := tx.ExecContext(ctx, "INSERT INTO nowhere VALUES (1)")
		require.Error(t, err)
		return nil
	})(t.Context(), numbered(0)), "inbox: committing (Postgres): ")
	effects, receipts := db.effects(t)
	require.Empty(t, effects)
	require.Zero(t, receipts)
}

func TestMethodsWithoutTableReturnErrNoTable(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, db database) {
		box, err := inbox.New(db.DB, db.dialect, inbox.WithSubscription("s"), inbox.WithTable("absent"))
		require.NoError(t, err)
		err = db.handler(box)(t.Context(), numbered(0))
		require.ErrorIs(t, err, inbox.ErrNoTable)
		require.ErrorContains(t, err, "table absent")
		require.True(t, worker.IsSnooze(err), "the Worker would make each message a dead letter")
		_, err = box.Prune(t.Context(), time.Hour)
		require.ErrorIs(t, err, inbox.ErrNoTable)
		_, err = box.Seen(t.Context(), numbered(0))
		require.ErrorIs(t, err, inbox.ErrNoTable)
	})
}

func TestWrongDialectIsNamedInTheErrorAndLeavesNoReceipts(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, db database) {
		right := db.newBox(t)
		for _, wrong := range []inbox.Dialect{inbox.Postgres, inbox.MySQL, inbox.SQLite} {
			if wrong == db.dialect {
				continue
			}
			box, err := inbox.New(db.DB, wrong, inbox.WithSubscription("s"))
			require.NoError(t, err)
			for operation, call := range map[string]func() error{
				"creating the table redelivery_inbox": func() error { return box.Migrate(t.Context()) },
				"inserting receipts": func() error {
					return box.BatchHandler(db.addEffects)(t.Context(), batchOf(2))
				},
			} {
				err := call()
				require.ErrorContains(t, err, "inbox: "+operation+" ("+wrong.String()+"): ")
				require.ErrorContains(t, err, "; New got the dialect "+wrong.String()+": does the database use it?")
			}
		}
		require.NoError(t, right.BatchHandler(db.addEffects)(t.Context(), batchOf(2)))
		effects, receipts := db.effects(t)
		require.Equal(t, map[string]int{"a": 1, "b": 1}, effects)
		require.Equal(t, 2, receipts)
	})
}

func TestHandlerWithoutSubscriptionAsksForWithSubscription(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, db database) {
		box, err := inbox.New(db.DB, db.dialect)
		require.NoError(t, err)
		require.ErrorContains(t, db.handler(box)(t.Context(), numbered(0)), "want WithSubscription")
	})
}

// Two transactions lock two rows in opposite orders. The database ends one of the transactions, and the Inbox begins it
// again.
func TestHandlersInADeadlockBothSucceed(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, db database) {
		box := db.newBox(t)
		_, err := db.ExecContext(t.Context(), "INSERT INTO effect VALUES ('x', 0), ('y', 0)")
		require.NoError(t, err)
		var bothLocked sync.WaitGroup
		if db.dialect != inbox.SQLite { // SQLite has one writer at a time
			bothLocked.Add(2)
		}
		handle := func(n int64, one, other string) error {
			locked := db.dialect == inbox.SQLite
			return box.Handler(func(ctx context.Context, tx *sql.Tx, _ pulsar.Message) error {
				if err := db.addEffect(ctx, tx, one); err != nil {
					return err
				}
				if !locked {
					locked = true
					bothLocked.Done()
					bothLocked.Wait()
				}
				return db.addEffect(ctx, tx, other)
			})(t.Context(), numbered(n))
		}
		var group errgroup.Group
		group.Go(func() error { return handle(0, "x", "y") })
		group.Go(func() error { return handle(1, "y", "x") })
		require.NoError(t, group.Wait())
		effects, receipts := db.effects(t)
		require.Equal(t, map[string]int{"x": 2, "y": 2}, effects)
		require.Equal(t, 2, receipts)
		if db.dialect != inbox.SQLite {
			require.Equal(t, uint64(1), box.Stats().Retries)
		}
	})
}

func TestConcurrentMigrationsCreateOneTable(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, db database) {
		box, err := inbox.New(db.DB, db.dialect, inbox.WithSubscription("s"))
		require.NoError(t, err)
		var group errgroup.Group
		for range 8 {
			group.Go(func() error { return box.Migrate(t.Context()) })
		}
		require.NoError(t, group.Wait())
		require.NoError(t, db.handler(box)(t.Context(), numbered(0)))
	})
}

// Postgres' CREATE INDEX IF NOT EXISTS waits for handlers even if the index exists, and new handlers wait for it.
func TestMigrateDoesNotWaitForHandlers(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, db database) {
		box := db.newBox(t)
		require.NoError(t, box.Handler(func(context.Context, *sql.Tx, pulsar.Message) error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			return box.Migrate(ctx)
		})(t.Context(), numbered(0)))
	})
}

func TestMigrateCreatesTableInItsSchema(t *testing.T) {
	db := open(t, inbox.Postgres, "pgx", setting(t, "POSTGRES_URL"))
	db.newBox(t)
	for _, statement := range []string{"DROP SCHEMA IF EXISTS app CASCADE", "CREATE SCHEMA app"} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	for range 2 {
		box := db.newBox(t, inbox.WithTable("app.redelivery_inbox"))
		require.NoError(t, db.handler(box)(t.Context(), numbered(0)))
		seen, err := box.Seen(t.Context(), numbered(0))
		require.NoError(t, err)
		require.True(t, seen)
	}
	_, receipts := db.effects(t)
	require.Zero(t, receipts, "receipts are in the table of another schema")
}

func TestPruneDeletesOnlyOldReceipts(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, db database) {
		box := db.newBox(t, inbox.WithPruning(0))
		require.NoError(t, box.BatchHandler(db.addEffects)(t.Context(), batchOf(5)))
		_, err := db.ExecContext(t.Context(), "UPDATE redelivery_inbox SET committed = committed - 3600")
		require.NoError(t, err)
		require.NoError(t, db.handler(box)(t.Context(), numbered(9)))
		n, err := box.Prune(t.Context(), 2*time.Hour)
		require.NoError(t, err)
		require.Zero(t, n)
		n, err = box.Prune(t.Context(), 30*time.Minute)
		require.NoError(t, err)
		require.EqualValues(t, 5, n)
		_, receipts := db.effects(t)
		require.Equal(t, 1, receipts)
	})
}

func TestPruneDoesNotWaitForHandlers(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, db database) {
		if db.dialect == inbox.SQLite {
			t.Skip("SQLite has one writer at a time")
		}
		box := db.newBox(t, inbox.WithPruning(0))
		require.NoError(t, box.BatchHandler(db.addEffects)(t.Context(), batchOf(5)))
		_, err := db.ExecContext(t.Context(), "UPDATE redelivery_inbox SET committed = committed - 3600")
		require.NoError(t, err)
		require.NoError(t, box.Handler(func(context.Context, *sql.Tx, pulsar.Message) error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			n, err := box.Prune(ctx, 30*time.Minute)
			require.EqualValues(t, 5, n)
			return err
		})(t.Context(), numbered(9)))
	})
}

func TestHandlerAlsoPrunesOldReceipts(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, db database) {
		require.NoError(t, db.newBox(t, inbox.WithPruning(0)).BatchHandler(db.addEffects)(t.Context(), batchOf(5)))
		_, err := db.ExecContext(t.Context(), "UPDATE redelivery_inbox SET committed = committed - 3600")
		require.NoError(t, err)
		box := db.newBox(t, inbox.WithPruning(time.Minute))
		require.NoError(t, db.handler(box)(t.Context(), numbered(9)))
		_, receipts := db.effects(t)
		require.Equal(t, 1, receipts)
		require.Equal(t, uint64(5), box.Stats().Pruned)
	})
}

func TestMessagesWithOneKeyOfWithKeyHaveOneEffect(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, db database) {
		box := db.newBox(t, inbox.WithKey(func(msg pulsar.Message) string { return msg.Properties()["order"] }))
		for n, order := range []string{"7", "7", "", ""} {
			m := numbered(int64(n))
			m.props = map[string]string{"order": order}
			require.NoError(t, db.handler(box)(t.Context(), m))
		}
		effects, receipts := db.effects(t)
		require.Equal(t, map[string]int{"a": 1, "c": 1, "d": 1}, effects)
		require.Equal(t, 3, receipts)
	})
}

func TestNewWithBadInputNamesTheValue(t *testing.T) {
	db := &sql.DB{}
	for want, option := range map[string]inbox.Option{
		`WithTable is "a; DROP TABLE b", want`:       inbox.WithTable("a; DROP TABLE b"),
		`WithTable is "a.b.c", want`:                 inbox.WithTable("a.b.c"),
		`WithSubscription is "", want`:               inbox.WithSubscription(""),
		`WithKey is nil, want`:                       inbox.WithKey(nil),
		`WithPruning is 30ns, want 0, or a minute`:   inbox.WithPruning(30),
		`WithPruning is -1h0m0s, want`:               inbox.WithPruning(-time.Hour),
		`WithRetryTopic is "a/b", want`:              inbox.WithRetryTopic("a/b"),
		`WithTxOptions's ReadOnly is true, want fal`: inbox.WithTxOptions(sql.TxOptions{ReadOnly: true}),
	} {
		_, err := inbox.New(db, inbox.SQLite, option)
		require.ErrorIs(t, err, redelivery.ErrInvalidOption)
		require.ErrorContains(t, err, want)
	}
	_, err := inbox.New(nil, inbox.SQLite)
	require.ErrorContains(t, err, "New's db is nil, want a *sql.DB")
	_, err = inbox.New(db, inbox.Dialect{})
	require.ErrorContains(t, err, "New's dialect is none, want Postgres, MySQL or SQLite")
}

func TestInboxCollectsItsStatsForPrometheus(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, db database) {
		box := db.newBox(t)
		for range 3 {
			require.NoError(t, db.handler(box)(t.Context(), numbered(0)))
		}
		require.NoError(t, testutil.CollectAndCompare(box, strings.NewReader(
			"# HELP redelivery_inbox_duplicates_total Messages whose effects had been committed before.\n"+
				"# TYPE redelivery_inbox_duplicates_total counter\nredelivery_inbox_duplicates_total 2\n"),
			"redelivery_inbox_duplicates_total"))
	})
}
