package inbox_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/pulsar-redelivery/redelivery/inbox"
)

// database is a database without receipts. Its table effect counts how often each effect, given by its name, happened.
type database struct {
	*sql.DB
	dialect inbox.Dialect
}

// onEachDatabase runs a test on SQLite, and on Postgres and MySQL if POSTGRES_URL and MYSQL_DSN are set.
func onEachDatabase(t *testing.T, test func(t *testing.T, db database)) {
	t.Run("SQLite", func(t *testing.T) {
		test(t, open(t, inbox.SQLite, "sqlite",
			"file:"+filepath.Join(t.TempDir(), "db")+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)"))
	})
	t.Run("Postgres", func(t *testing.T) { test(t, open(t, inbox.Postgres, "pgx", setting(t, "POSTGRES_URL"))) })
	t.Run("MySQL", func(t *testing.T) { test(t, open(t, inbox.MySQL, "mysql", setting(t, "MYSQL_DSN"))) })
}

func setting(t *testing.T, name string) string {
	value := os.Getenv(name)
	if value == "" {
		t.Skip(name + " is not set")
	}
	return value
}

func open(t *testing.T, dialect inbox.Dialect, driver, source string) database {
	db, err := sql.Open(driver, source)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	for _, statement := range []string{"DROP TABLE IF EXISTS redelivery_inbox", "DROP TABLE IF EXISTS effect",
		"CREATE TABLE effect (name varchar(100) PRIMARY KEY, n int NOT NULL)"} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	return database{db, dialect}
}

// newBox creates the table of receipts, and returns an Inbox for subscription s.
func (db database) newBox(t *testing.T, options ...inbox.Option) *inbox.Inbox {
	box, err := inbox.New(db.DB, db.dialect, append([]inbox.Option{inbox.WithSubscription("s")}, options...)...)
	require.NoError(t, err)
	require.NoError(t, box.Migrate(t.Context()))
	return box
}

// addEffect makes the effect with this name once.
func (db database) addEffect(ctx context.Context, tx *sql.Tx, name string) error {
	update, insert := "UPDATE effect SET n = n + 1 WHERE name = ?", "INSERT INTO effect VALUES (?, 1)"
	if db.dialect == inbox.Postgres {
		update, insert = "UPDATE effect SET n = n + 1 WHERE name = $1", "INSERT INTO effect VALUES ($1, 1)"
	}
	result, err := tx.ExecContext(ctx, update, name)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		return err
	}
	_, err = tx.ExecContext(ctx, insert, name)
	return err
}

// addEffects makes one effect for each message of a batch. The effect has the message's payload as its name.
func (db database) addEffects(ctx context.Context, tx *sql.Tx, msgs []pulsar.Message) error {
	for _, msg := range msgs {
		if err := db.addEffect(ctx, tx, string(msg.Payload())); err != nil {
			return err
		}
	}
	return nil
}

// effects returns how often each effect happened, and how many receipts there are.
func (db database) effects(t *testing.T) (effects map[string]int, receipts int) {
	rows, err := db.QueryContext(t.Context(), "SELECT name, n FROM effect")
	require.NoError(t, err)
	effects = map[string]int{}
	for rows.Next() {
		var name string
		var n int
		require.NoError(t, rows.Scan(&name, &n))
		effects[name] = n
	}
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close())
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM redelivery_inbox").Scan(&receipts))
	return effects, receipts
}

// message has only the fields that an Inbox and the tests read.
type message struct {
	pulsar.Message
	topic   string
	id      pulsar.MessageID
	props   map[string]string
	payload string
}

func (m message) Topic() string                 { return m.topic }
func (m message) ID() pulsar.MessageID          { return m.id }
func (m message) Properties() map[string]string { return m.props }
func (m message) Payload() []byte               { return []byte(m.payload) }

const topic = "persistent://public/default/orders"

// numbered returns message n of the topic.
func numbered(n int64) message {
	return message{topic: topic, id: pulsar.NewMessageID(1, n, -1, 0), payload: string(rune('a' + n))}
}

func batchOf(n int64) (msgs []pulsar.Message) {
	for i := range n {
		msgs = append(msgs, numbered(i))
	}
	return msgs
}
