// Inbox transfers money between accounts in an SQLite database, while handlers crash at random. Each transfer happens
// once: the sums are right at the end. For comparison, the program does the same without an Inbox.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	_ "modernc.org/sqlite"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/inbox"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

const transfers = 200 // of 1, from alice to bob

func main() {
	fmt.Printf("%d messages move 1 from alice to bob; right: alice %d, bob %d. Handlers crash at random.\n\n",
		transfers, -transfers, transfers)
	for _, once := range []bool{false, true} {
		if err := run(once); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("\nOK: with an inbox each transfer happened once.")
}

// transfer moves 1 from alice to bob. Some calls crash in the middle.
func transfer(ctx context.Context, tx *sql.Tx, _ pulsar.Message) error {
	if _, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance - 1 WHERE name = 'alice'"); err != nil {
		return err
	}
	crash("before the end")
	_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance + 1 WHERE name = 'bob'")
	return err
}

// crash panics in one of ten calls. The Worker treats a panic of the handler as an error, so the message comes back.
func crash(where string) {
	if rand.IntN(10) == 0 {
		panic("crash " + where)
	}
}

func run(once bool) error {
	db, stop, err := openDatabase()
	if err != nil {
		return err
	}
	defer stop()
	handler := func(ctx context.Context, msg pulsar.Message) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // without effect after Commit
		if err := transfer(ctx, tx, msg); err != nil {
			return err
		}
		return tx.Commit()
	}
	name := "without inbox"
	if once {
		name = "with inbox"
		box, err := inbox.New(db, inbox.SQLite)
		if err != nil {
			return err
		}
		if err := box.Migrate(context.Background()); err != nil {
			return err
		}
		handler = box.Handler(transfer)
	}
	crashes, err := consume(func(ctx context.Context, msg pulsar.Message) error {
		err := handler(ctx, msg)
		crash("before the acknowledgement")
		return err
	})
	if err != nil {
		return err
	}
	var alice, bob int
	if err := db.QueryRow("SELECT a.balance, b.balance FROM account a, account b WHERE a.name = 'alice' AND b.name "+
		"= 'bob'").Scan(&alice, &bob); err != nil {
		return err
	}
	fmt.Printf("%-14s %d messages, %2d crashes: alice %4d, bob %4d\n", name, transfers, crashes, alice, bob)
	if once && (alice != -transfers || bob != transfers) {
		return errors.New("a transfer was lost or happened twice")
	}
	return nil
}

// consume publishes the transfers to a broker in this process, and handles them until all are acknowledged. It returns
// the number of crashes.
func consume(handler worker.Handler) (crashes uint64, err error) {
	quiet := slog.New(slog.DiscardHandler)
	broker, err := pulsartest.Start()
	if err != nil {
		return 0, err
	}
	defer broker.Close()
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: broker.URL(), Logger: plog.NewLoggerWithSlog(quiet)})
	if err != nil {
		return 0, err
	}
	defer client.Close()
	consumer, err := redelivery.Subscribe(client,
		pulsar.ConsumerOptions{Topic: "transfers", SubscriptionName: "bank", Type: pulsar.Shared},
		redelivery.WithNackRedeliveryDelay(10*time.Millisecond), redelivery.WithLogger(quiet))
	if err != nil {
		return 0, err
	}
	defer consumer.Close()
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: "transfers"})
	if err != nil {
		return 0, err
	}
	for range transfers {
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: []byte("1")}, nil)
	}
	if err := producer.Flush(); err != nil {
		return 0, err
	}
	w, err := worker.New(consumer, handler, worker.WithConcurrency(4), worker.WithLogger(quiet))
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	go func() {
		for w.Stats().Succeeded < transfers && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
	}()
	if err := w.Run(ctx); err != nil {
		return 0, err
	}
	if s := w.Stats(); s.Succeeded < transfers {
		return 0, fmt.Errorf("%d of %d messages were acknowledged within a minute", s.Succeeded, transfers)
	}
	return w.Stats().Panics, nil
}

func openDatabase() (db *sql.DB, stop func(), err error) {
	dir, err := os.MkdirTemp("", "inbox")
	if err != nil {
		return nil, nil, err
	}
	db, err = sql.Open("sqlite", "file:"+filepath.Join(dir,
		"bank.db")+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err == nil {
		_, err = db.Exec("CREATE TABLE account (name text PRIMARY KEY, balance int); INSERT INTO account VALUES " +
			"('alice', 0), ('bob', 0)")
	}
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return db, func() { _ = errors.Join(db.Close(), os.RemoveAll(dir)) }, nil
}
