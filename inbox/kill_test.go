package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/inbox"
	"github.com/pulsar-redelivery/redelivery/worker"
)

var (
	kills         = flag.Int("kills", 4, "how often the test kills the process of a consumer")
	databaseKills = flag.Int("database-kills", 0, "how often the test kills the database with -postgres")
	postgres      = flag.String("postgres", "../test/scripts/postgres", "the program to kill and resume the database")
	messages      = flag.Int("messages", 3000, "how many messages the test publishes")
	instances     = flag.Int("instances", 2, "how many processes consume at the same time")
	withoutBox    = flag.Bool("without-inbox", false, "count the effects of a handler without an Inbox")
	limit         = flag.Duration("kills-limit", 20*time.Minute, "how long the test may take")
	batches       = flag.Bool("batches", false, "handle batches of up to 100 messages")
)

const consumerProcess = "INBOX_CONSUMER_OF" // names the topic

func TestMain(m *testing.M) {
	if topic := os.Getenv(consumerProcess); topic != "" {
		flag.Parse()
		if err := consume(context.Background(), topic); err != nil {
			fmt.Fprintln(os.Stderr, "consumer:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// consume handles messages until the process is killed. A message has two effects: one more in its own row of the table
// effect, and a new row of the table total. 5 % of the messages fail during two of every three seconds.
func consume(ctx context.Context, topic string) error {
	quiet := slog.New(slog.DiscardHandler)
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: os.Getenv("PULSAR_URL"),
		Logger: plog.NewLoggerWithSlog(quiet)})
	if err != nil {
		return err
	}
	consumer, err := redelivery.Subscribe(client,
		pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "transfers", Type: pulsar.Shared,
			SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest},
		redelivery.WithLogger(quiet),
		redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: 50 * time.Millisecond, Max: time.Second}),
		redelivery.WithReconsumeBackoff(backoff.Fixed(time.Second)),
		redelivery.WithNackRetryTopic(200*time.Millisecond),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 4,
			InitialSubscriptionName: "inspect"}))
	if err != nil {
		return err
	}
	db, err := sql.Open("pgx", os.Getenv("POSTGRES_URL"))
	if err != nil {
		return err
	}
	box, err := inbox.New(db, inbox.Postgres)
	if err != nil {
		return err
	}
	effect := func(ctx context.Context, tx *sql.Tx, msg pulsar.Message) error {
		h := fnv.New32a()
		_, _ = h.Write(msg.Payload())
		if _, err := tx.ExecContext(ctx,
			"INSERT INTO effect VALUES ($1, 1) ON CONFLICT (name) DO UPDATE SET n = effect.n + 1",
			string(msg.Payload())); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO total VALUES ($1, 1)", os.Getpid()); err != nil {
			return err
		}
		if sum := int64(h.Sum32()); sum%20 == 0 && (sum/20+time.Now().Unix())%3 > 0 {
			return errors.New("fails for a while")
		}
		return nil
	}
	w, err := newWorker(consumer, box, db, effect, quiet)
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

type effectFunc = func(ctx context.Context, tx *sql.Tx, msg pulsar.Message) error

func newWorker(c *redelivery.Consumer, box *inbox.Inbox, db *sql.DB, effect effectFunc,
	quiet *slog.Logger) (*worker.Worker, error) {
	options := []worker.Option{worker.WithLogger(quiet), worker.WithConcurrency(8)}
	switch {
	case *withoutBox:
		return worker.New(c, func(ctx context.Context, msg pulsar.Message) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if err := effect(ctx, tx, msg); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		}, options...)
	case *batches:
		return worker.NewBatch(c, box.BatchHandler(func(ctx context.Context, tx *sql.Tx, msgs []pulsar.Message) error {
			failed := worker.BatchError{}
			for i, msg := range msgs {
				if err := effect(ctx, tx, msg); err != nil {
					if !strings.Contains(err.Error(), "for a while") {
						return err
					}
					failed[i] = err
				}
			}
			if len(failed) > 0 {
				return failed
			}
			return nil
		}), worker.Batch{}, options...)
	}
	return worker.New(c, box.Handler(effect), options...)
}

// process is one of the consumers.
type process struct {
	topic  string
	cmd    *exec.Cmd
	exited chan error
}

func (p *process) start() error {
	p.cmd = exec.Command(os.Args[0], fmt.Sprint("-without-inbox=", *withoutBox), fmt.Sprint("-batches=", *batches)) //nolint:gosec // the test itself
	p.cmd.Env = append(os.Environ(), consumerProcess+"="+p.topic)
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.exited = make(chan error, 1)
	go func(cmd *exec.Cmd, exited chan<- error) { exited <- cmd.Wait() }(p.cmd, p.exited)
	return nil
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// The run has all of these: batches and single messages, messages that fail for a while, nacks, retries through the
// retry topic, replayed dead letters, kills of processes and of the database, and unloads of topics.
func TestKillsLeaveEachEffectOnce(t *testing.T) {
	url, admin := setting(t, "PULSAR_URL"), setting(t, "PULSAR_ADMIN_URL")
	db := open(t, inbox.Postgres, "pgx", setting(t, "POSTGRES_URL"))
	db.newBox(t)
	for _, statement := range []string{"DROP TABLE IF EXISTS total", "CREATE TABLE total (pid int, n int NOT NULL)"} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	quiet := slog.New(slog.DiscardHandler)
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: url, Logger: plog.NewLoggerWithSlog(quiet)})
	require.NoError(t, err)
	defer client.Close()
	topic := fmt.Sprintf("transfers-%d", time.Now().UnixNano())
	publish(t, client, topic)

	consumers := make([]*process, *instances)
	for n := range consumers {
		consumers[n] = &process{topic: topic}
		require.NoError(t, consumers[n].start())
		defer consumers[n].kill()
	}
	letters, err := deadletter.Open(client,
		deadletter.Options{Topic: topic + "-transfers-DLQ", Admin: deadletter.Admin{URL: admin}})
	require.NoError(t, err)
	processAt, databaseAt := killPoints(*kills), killPoints(*databaseKills)
	last := time.Now()
	handled, processesKilled, databasesKilled, replayed := 0, 0, 0, 0
	for began := time.Now(); handled < *messages || processesKilled < *kills || databasesKilled < *databaseKills; {
		require.Less(t, time.Since(began), *limit, "%d of %d messages have their effects", handled, *messages)
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
		for _, c := range consumers {
			select {
			case <-c.exited: // the process could not subscribe, or lost the database
				require.NoError(t, c.start())
			default:
			}
		}
		var n int
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM effect").Scan(&n); err == nil {
			handled = n
		}
		if processesKilled < *kills && handled >= processAt[processesKilled] {
			c := consumers[rand.IntN(len(consumers))]
			c.kill()
			require.NoError(t, c.start())
			processesKilled++
		}
		if databasesKilled < *databaseKills && handled >= databaseAt[databasesKilled] {
			for _, verb := range []string{"kill", "resume"} {
				out, err := exec.CommandContext(t.Context(), *postgres, verb).CombinedOutput()
				require.NoError(t, err, string(out))
			}
			databasesKilled++
		}
		if rand.IntN(15) == 0 {
			unload(t, admin, topic)
		}
		if time.Since(last) < 3*time.Second {
			continue
		}
		last = time.Now()
		if report, err := letters.Replay(t.Context(), deadletter.ReplayOptions{MaxReplays: 10_000}); err == nil {
			replayed += report.Done
		}
	}
	time.Sleep(5 * time.Second) // for messages that come a second time
	effects, receipts := db.effects(t)
	sum, doubles := 0, 0
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT sum(n) FROM total").Scan(&sum))
	for _, n := range effects {
		if n > 1 {
			doubles++
		}
	}
	t.Logf("%d messages, %d processes and %d databases killed, %d letters replayed: %d effects, sum %d, %d "+
		"receipts, %d messages with more than one effect",
		*messages, processesKilled, databasesKilled, replayed, len(effects), sum, receipts, doubles)
	if *withoutBox {
		return
	}
	require.Zero(t, doubles)
	require.Equal(t, *messages, sum)
	require.Equal(t, *messages, receipts)
}

// killPoints returns n random numbers in ascending order. The next kill happens when the number of messages with
// effects reaches the next number.
func killPoints(n int) []int {
	at := make([]int, n)
	for i := range at {
		at[i] = rand.IntN(*messages)
	}
	slices.Sort(at)
	return at
}

// publish publishes half of the messages in batches, and the other half one by one.
func publish(t *testing.T, client pulsar.Client, topic string) {
	for _, alone := range []bool{false, true} {
		producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: alone,
			MaxPendingMessages: 1000})
		require.NoError(t, err)
		for n := range *messages / 2 {
			producer.SendAsync(t.Context(), &pulsar.ProducerMessage{Payload: fmt.Appendf(nil, "%v %d", alone, n)},
				func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
					if err != nil {
						t.Error(err)
					}
				})
		}
		require.NoError(t, producer.FlushWithCtx(t.Context()))
		producer.Close()
	}
}

func unload(t *testing.T, admin, topic string) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut,
		admin+"/admin/v2/persistent/public/default/"+topic+"/unload", nil)
	require.NoError(t, err)
	if response, err := http.DefaultClient.Do(r); err == nil {
		_ = response.Body.Close()
	}
}
