package inbox_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/inbox"
)

var receipts = flag.Int("receipts", 0,
	"how many receipts BenchmarkHandler first puts into the Postgres table; its handlers then also prune")

// BenchmarkHandler compares a plain handler with a transaction and a handler in an Inbox. Cases are single messages
// whose effect is one INSERT or four, and batches of 100, with 1, 8 and 64 handlers at the same time. ratio is the
// handler's messages a second, divided by those of the plain handler. cpu-ratio divides the processor times instead, of
// this process and the database together. Other programs hardly change it. Each ratio is a median of b.N rounds, and
// each round runs all handlers. select-1-ratio and select-1-cpu-ratio are for a plain handler with a SELECT 1 before
// its effect, the least that a receipt could cost.
func BenchmarkHandler(b *testing.B) {
	b.Run("Postgres", func(b *testing.B) {
		url := os.Getenv("POSTGRES_URL")
		if url == "" {
			b.Skip("POSTGRES_URL is not set")
		}
		compare(b, inbox.Postgres, "pgx", url)
	})
	b.Run("SQLite", func(b *testing.B) {
		compare(b, inbox.SQLite, "sqlite",
			"file:"+filepath.Join(b.TempDir(), "db")+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	})
}

type handle = func(ctx context.Context, msgs []pulsar.Message) error

func compare(b *testing.B, dialect inbox.Dialect, driver, source string) {
	for _, c := range []struct{ size, statements int }{{1, 1}, {1, 4}, {100, 1}} {
		for _, handlers := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("batch=%d/statements=%d/handlers=%d", c.size, c.statements, handlers), func(b *testing.B) {
				db, err := sql.Open(driver, source)
				require.NoError(b, err)
				defer func() { require.NoError(b, db.Close()) }()
				db.SetMaxIdleConns(64)
				if dialect == inbox.SQLite {
					db.SetMaxOpenConns(1) // SQLite has one writer at a time
				}
				for _, statement := range []string{"DROP TABLE IF EXISTS redelivery_inbox",
					"DROP TABLE IF EXISTS effect", "CREATE TABLE effect (id bigint, what text)"} {
					_, err := db.ExecContext(b.Context(), statement)
					require.NoError(b, err)
				}
				box, err := inbox.New(db, dialect, inbox.WithSubscription("s"))
				require.NoError(b, err)
				require.NoError(b, box.Migrate(b.Context()))
				if dialect == inbox.Postgres {
					_, err = db.ExecContext(b.Context(), "INSERT INTO redelivery_inbox SELECT "+
						"decode(left(md5((n / 1000)::text), 8) || left(md5(n::text), 24), 'hex'), n "+
						"FROM generate_series(1, $1::int) n", *receipts)
					require.NoError(b, err)
				}
				runRounds(b, db, dialect, c.size, c.statements, handlers, box)
				if *receipts > 0 && dialect == inbox.Postgres {
					began := time.Now()
					n, err := box.Prune(b.Context(), time.Hour)
					require.NoError(b, err)
					b.ReportMetric(float64(n)/time.Since(began).Seconds(), "pruned/s")
				}
			})
		}
	}
}

func runRounds(b *testing.B, db *sql.DB, dialect inbox.Dialect, size, statements, handlers int, box *inbox.Inbox) {
	insert := "INSERT INTO effect VALUES (?, ?)"
	if dialect == inbox.Postgres {
		insert = "INSERT INTO effect VALUES ($1, $2)"
	}
	effect := func(ctx context.Context, tx *sql.Tx, msgs []pulsar.Message) error {
		for _, msg := range msgs {
			for range statements {
				if _, err := tx.ExecContext(ctx, insert, msg.ID().EntryID(), "an order"); err != nil {
					return err
				}
			}
		}
		return nil
	}
	plain := func(before string) handle {
		return func(ctx context.Context, msgs []pulsar.Message) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }() // without effect after Commit
			if before != "" {
				if _, err := tx.ExecContext(ctx, before); err != nil {
					return err
				}
			}
			if err := effect(ctx, tx, msgs); err != nil {
				return err
			}
			return tx.Commit()
		}
	}
	candidates := []handle{plain(""), plain("SELECT 1"), box.BatchHandler(effect)}
	var took, used [3][]time.Duration
	var next atomic.Int64
	for round := range b.N + 1 { // the first round connects, and prepares statements
		for n := range candidates {
			n = (n + round) % len(candidates)
			cpu, began := processorTime(b, db, dialect), time.Now()
			callHandler(b, size, handlers, &next, candidates[n])
			if round > 0 {
				took[n] = append(took[n], time.Since(began))
				used[n] = append(used[n], processorTime(b, db, dialect)-cpu)
			}
		}
	}
	for n, name := range []string{"", "select-1-", ""} {
		if n > 0 {
			b.ReportMetric(median(took[0])/median(took[n]), name+"ratio")
			b.ReportMetric(median(used[0])/median(used[n]), name+"cpu-ratio")
		}
	}
}

func median(all []time.Duration) float64 {
	slices.Sort(all)
	return all[len(all)/2].Seconds()
}

// callHandler calls a handler with 384 messages or 64 batches.
func callHandler(b *testing.B, size, handlers int, next *atomic.Int64, handle handle) {
	done, each := make(chan error), 384/handlers
	if size > 1 {
		each = 64 / handlers
	}
	for range handlers {
		go func() {
			var err error
			for n := 0; n < each && err == nil; n++ {
				msgs := make([]pulsar.Message, size)
				for i := range msgs {
					msgs[i] = message{topic: topic, id: pulsar.NewMessageID(1, next.Add(1), -1, 0)}
				}
				err = handle(b.Context(), msgs)
			}
			done <- err
		}()
	}
	for range handlers {
		require.NoError(b, <-done)
	}
}

// processorTime returns the processor time that this process and those of the database have used, on Linux.
func processorTime(b *testing.B, db *sql.DB, dialect inbox.Dialect) (sum time.Duration) {
	processes := []string{"self"}
	if dialect == inbox.Postgres {
		rows, err := db.QueryContext(b.Context(), "SELECT pid::text FROM pg_stat_activity")
		require.NoError(b, err)
		for rows.Next() {
			var pid string
			require.NoError(b, rows.Scan(&pid))
			processes = append(processes, pid)
		}
		require.NoError(b, rows.Err())
		require.NoError(b, rows.Close())
	}
	for _, pid := range processes {
		threads, err := filepath.Glob("/proc/" + pid + "/task/*/schedstat")
		require.NoError(b, err)
		for _, thread := range threads {
			text, err := os.ReadFile(thread) //nolint:gosec // of /proc
			if err != nil {
				continue // the thread has ended
			}
			var ns time.Duration
			_, err = fmt.Sscan(string(text), (*int64)(&ns))
			require.NoError(b, err)
			sum += ns
		}
	}
	return sum
}
