package inbox

import (
	"bytes"
	"fmt"
	"strings"
)

// Dialect is the SQL of a database. New refuses the zero Dialect.
type Dialect struct{ *dialect }

// The databases that an Inbox can use.
var (
	// Postgres is PostgreSQL 10 or later.
	Postgres = Dialect{&dialect{
		name: "Postgres", quote: `"`, numbered: true,
		create: "CREATE TABLE IF NOT EXISTS %[1]s (receipt bytea PRIMARY KEY, committed bigint NOT NULL);\n" +
			"CREATE INDEX IF NOT EXISTS %[2]s ON %[1]s USING brin (committed) WITH (autosummarize = on)",
		lock: "SELECT pg_advisory_xact_lock(hashtext('%s'))",
		indexes: "SELECT count(*) FROM pg_indexes WHERE schemaname = coalesce(nullif('%s', ''), current_schema()) " +
			"AND indexname = '%s'",
		insert: "INSERT INTO %[1]s (receipt, committed) VALUES %[2]s ON CONFLICT DO NOTHING",
		insertJoined: "INSERT INTO %[1]s (receipt, committed) SELECT substr($1::bytea, n, 16), $2 FROM " +
			"generate_series(1, length($1::bytea), 16) AS n ON CONFLICT DO NOTHING",
		prune: "DELETE FROM %[1]s WHERE ctid = ANY(ARRAY(SELECT ctid FROM %[1]s WHERE committed < %[2]s LIMIT " +
			"%[3]d FOR UPDATE SKIP LOCKED))",
		missing: "42P01",
	}}
	// MySQL is MySQL 5.7 or later, and MariaDB 10.3 or later.
	MySQL = Dialect{&dialect{
		name: "MySQL", quote: "`",
		create: "CREATE TABLE IF NOT EXISTS %[1]s (receipt binary(16) PRIMARY KEY, committed bigint NOT NULL, " +
			"INDEX %[2]s (committed)) ENGINE=InnoDB",
		insert:  "INSERT IGNORE INTO %[1]s (receipt, committed) VALUES %[2]s",
		prune:   "DELETE FROM %[1]s WHERE committed < %[2]s ORDER BY committed LIMIT %[3]d",
		missing: "Error 1146",
	}}
	// SQLite is SQLite 3.24 or later. It has one writer at a time: set a busy timeout, and prefer BatchHandler.
	SQLite = Dialect{&dialect{
		name: "SQLite", quote: `"`,
		create: "CREATE TABLE IF NOT EXISTS %[1]s (receipt BLOB PRIMARY KEY, committed INTEGER NOT NULL) WITHOUT " +
			"ROWID;\n" +
			"CREATE INDEX IF NOT EXISTS %[2]s ON %[1]s (committed)",
		insert:  "INSERT INTO %[1]s (receipt, committed) VALUES %[2]s ON CONFLICT DO NOTHING",
		prune:   "DELETE FROM %[1]s WHERE receipt IN (SELECT receipt FROM %[1]s WHERE committed < %[2]s LIMIT %[3]d)",
		missing: "no such table",
	}}
)

type dialect struct {
	name     string
	quote    string // around an identifier
	numbered bool   // whether parameters are $1, $2 … instead of ?
	create   string // of table and index
	lock     string // locks the table's name before create; "" if concurrent creation is safe
	indexes  string // counts indexes by schema and name, if create waits for handlers even though the index exists
	insert   string // inserts the receipts that the table does not have
	// insertJoined is insert with all receipts in one parameter, which is faster than 200 parameters; "" if the
	// database has no such statement
	insertJoined string
	prune        string // deletes a limited number of receipts
	missing      string // the SQLSTATE or the text of an error about a missing table
}

// String returns the name of the variable.
func (d Dialect) String() string {
	if d.dialect == nil {
		return "none"
	}
	return d.name
}

// quoted returns a name in quotes. The name may begin with a schema, as in "app.inbox".
func (d Dialect) quoted(name string) string {
	return d.quote + strings.ReplaceAll(name, ".", d.quote+"."+d.quote) + d.quote
}

// inserting returns the statement that inserts receipts, and its arguments.
func (d Dialect) inserting(table string, receipts [][]byte, committed int64) (statement string, args []any) {
	if d.insertJoined != "" && len(receipts) > 1 {
		return fmt.Sprintf(d.insertJoined, d.quoted(table)), []any{bytes.Join(receipts, nil), committed}
	}
	for _, receipt := range receipts {
		args = append(args, receipt, committed)
	}
	return fmt.Sprintf(d.insert, d.quoted(table), d.parameters(len(receipts), 2)), args
}

// parameters returns placeholders in groups: ($1, $2), ($3, $4).
func (d Dialect) parameters(groups, each int) string {
	var b strings.Builder
	for g := range groups {
		if g > 0 {
			b.WriteString(", ")
		}
		b.WriteByte('(')
		for i := range each {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(d.parameter(g*each + i + 1))
		}
		b.WriteByte(')')
	}
	return b.String()
}

func (d Dialect) parameter(n int) string {
	if d.numbered {
		return fmt.Sprintf("$%d", n)
	}
	return "?"
}
