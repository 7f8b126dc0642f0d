// Package sqlite measures how much faster a worker writes messages into SQLite if one transaction holds many of them.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/worker"
	_ "modernc.org/sqlite"
)

const messages = 5000

var quiet = slog.New(slog.DiscardHandler)

func BenchmarkInserts(b *testing.B) {
	b.Run("one by one", func(b *testing.B) {
		measure(b, func(c *redelivery.Consumer, db *sql.DB, done func(int)) (*worker.Worker, error) {
			return worker.New(c, func(ctx context.Context, msg pulsar.Message) error {
				defer done(1)
				return insert(ctx, db, []pulsar.Message{msg})
			}, worker.WithConcurrency(1), worker.WithLogger(quiet))
		})
	})
	for _, size := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("batches of %d", size), func(b *testing.B) {
			measure(b, func(c *redelivery.Consumer, db *sql.DB, done func(int)) (*worker.Worker, error) {
				return worker.NewBatch(c, func(ctx context.Context, msgs []pulsar.Message) error {
					defer done(len(msgs))
					return insert(ctx, db, msgs)
				}, worker.Batch{MaxMessages: size}, worker.WithConcurrency(1), worker.WithLogger(quiet))
			})
		})
	}
}

// insert writes messages in one transaction.
func insert(ctx context.Context, db *sql.DB, msgs []pulsar.Message) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, msg := range msgs {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, body) VALUES (?, ?)", msg.ID().String(),
			msg.Payload()); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// measure lets a worker write messages into a database on disk, and reports the number of messages a second.
func measure(b *testing.B, start func(c *redelivery.Consumer, db *sql.DB, done func(int)) (*worker.Worker, error)) {
	var took time.Duration
	for range b.N {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(),
			"orders.db")+"?_pragma=journal_mode(wal)&_pragma=synchronous(full)")
		check(b, err)
		_, err = db.Exec("CREATE TABLE orders (id TEXT PRIMARY KEY, body BLOB)")
		check(b, err)
		c := filled(b)
		ctx, cancel := context.WithCancel(context.Background())
		written := 0
		w, err := start(c, db, func(n int) {
			written += n
			if written == messages {
				cancel()
			}
		})
		check(b, err)
		began := time.Now()
		check(b, w.Run(ctx))
		took += time.Since(began)
		var rows int
		check(b, db.QueryRow("SELECT count(*) FROM orders").Scan(&rows))
		if rows != messages {
			b.Fatalf("%d rows, want %d", rows, messages)
		}
		c.Close()
		check(b, db.Close())
	}
	b.ReportMetric(float64(messages*b.N)/took.Seconds(), "msg/s")
}

// filled returns a consumer of a topic with messages, at the broker that PULSAR_URL names or at one in this process.
func filled(b *testing.B) *redelivery.Consumer {
	url := os.Getenv("PULSAR_URL")
	if url == "" {
		url = pulsartest.NewServer(b).URL()
	}
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: url, Logger: plog.NewLoggerWithSlog(quiet)})
	check(b, err)
	b.Cleanup(client.Close)
	topic := fmt.Sprintf("sqlite-%08x", rand.Uint32())
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic})
	check(b, err)
	defer producer.Close()
	c, err := redelivery.Subscribe(client,
		pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "sqlite", Type: pulsar.Shared},
		redelivery.WithLogger(quiet))
	check(b, err)
	var failed error
	for n := range messages {
		payload := fmt.Appendf(nil, "order %d %080d", n, n)
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: payload},
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { failed = cmp.Or(failed, err) })
	}
	check(b, producer.FlushWithCtx(context.Background()))
	check(b, failed)
	return c
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
