package inbox_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/inbox"
)

// Without a busy timeout SQLite refuses a second writer at once. The error names the remedy.
func TestErrorOfABusySQLiteNamesTheTimeout(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	other, err := db.Conn(t.Context())
	require.NoError(t, err)
	_, err = other.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)
	box, err := inbox.New(db, inbox.SQLite)
	require.NoError(t, err)
	require.ErrorContains(t, box.Migrate(t.Context()), "busy_timeout")
	_, err = other.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	require.NoError(t, other.Close())
	require.NoError(t, box.Migrate(t.Context()))
}
