package inbox_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/inbox"
)

var receipts = flag.Int("receipts", 0,
	"how many receipts there are before BenchmarkHandler, which then prunes them too")

// BenchmarkHandler compares a handler that has its effect in a transaction with the same handler of an Inbox, and the
// same for batches of 100. Eight handlers run at the same time, in pairs of a few thousand calls, so that a slow moment
// of the database meets both. The figure is messages a second with the Inbox, divided by those without.
func BenchmarkHandler(b *testing.B) {
	url := os.Getenv("POSTGRES_URL")
	if url == "" {
		b.Skip("POSTGRES_URL is not set")
	}
	for _, size := range []int{1, 100} {
		b.Run(fmt.Sprint("batch=", size), func(b *testing.B) {
			db, err := sql.Open("pgx", url)
			require.NoError(b, err)
			defer db.Close()
			db.SetMaxIdleConns(8)
			for _, statement := range []string{"DROP TABLE IF EXISTS effect, redelivery_inbox",
				"CREATE TABLE effect (id bigint, what text)"} {
				_, err := db.ExecContext(b.Context(), statement)
				require.NoError(b, err)
			}
			box, err := inbox.New(db, inbox.Postgres, inbox.WithSubscription("s"))
			require.NoError(b, err)
			require.NoError(b, box.Migrate(b.Context()))
			_, err = db.ExecContext(b.Context(),
				"INSERT INTO redelivery_inbox SELECT decode(md5(n::text), 'hex'), n FROM generate_series(1, $1::int) n",
				*receipts)
			require.NoError(b, err)
			effect := func(ctx context.Context, tx *sql.Tx, msgs []pulsar.Message) error {
				for _, msg := range msgs {
					if _, err := tx.ExecContext(ctx, "INSERT INTO effect VALUES ($1, $2)", msg.ID().EntryID(),
						"an order"); err != nil {
						return err
					}
				}
				return nil
			}
			plain := func(ctx context.Context, msgs []pulsar.Message) error {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				if err := effect(ctx, tx, msgs); err != nil {
					return err
				}
				return tx.Commit()
			}
			var with, without time.Duration
			var next atomic.Int64
			for range b.N {
				without += calls(b, size, &next, plain)
				with += calls(b, size, &next, box.BatchHandler(effect))
			}
			b.ReportMetric(without.Seconds()/with.Seconds(), "ratio")
			if *receipts > 0 {
				began := time.Now()
				n, err := box.Prune(b.Context(), time.Hour)
				require.NoError(b, err)
				b.ReportMetric(float64(n)/time.Since(began).Seconds(), "pruned/s")
			}
		})
	}
}

// calls returns how long eight goroutines take to handle two thousand messages, or a hundred times as many in batches
// of a hundred.
func calls(b *testing.B, size int, next *atomic.Int64,
	handle func(context.Context, []pulsar.Message) error) time.Duration {
	began, done := time.Now(), make(chan error)
	const goroutines, each = 8, 250
	for range goroutines {
		go func() {
			var err error
			for n := 0; n < max(each/size*10, min(each, 25)) && err == nil; n++ {
				msgs := make([]pulsar.Message, size)
				for i := range msgs {
					msgs[i] = message{topic: topic, id: pulsar.NewMessageID(1, next.Add(1), -1, 0)}
				}
				err = handle(b.Context(), msgs)
			}
			done <- err
		}()
	}
	for range goroutines {
		require.NoError(b, <-done)
	}
	return time.Since(began)
}
