package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Schema returns the statements that create the table of receipts and its index, for use in your own migrations.
//
// A receipt is 16 bytes: hashes of the subscription and the key. The table is not partitioned by day, since no unique
// index of Postgres spans partitions: the receipt of yesterday would not be found today. An index on the time makes
// pruning cheap instead.
func (i *Inbox) Schema() string {
	_, index := i.index()
	return fmt.Sprintf(i.dialect.create, i.dialect.quoted(i.table), i.dialect.quoted(index))
}

// index returns the schema and the name of the index. The schema is "" if WithTable gives none.
func (i *Inbox) index() (schema, name string) {
	dot := strings.LastIndex(i.table, ".")
	return i.table[:max(dot, 0)], i.table[dot+1:] + "_committed"
}

// Migrate creates the table of receipts if it is missing. Several processes may call it at the same time, also while
// handlers use the table.
func (i *Inbox) Migrate(ctx context.Context) error {
	tx, err := i.db.BeginTx(ctx, nil)
	if err != nil {
		return i.explained("beginning a transaction", err)
	}
	defer func() { _ = tx.Rollback() }() // without effect after Commit
	if i.dialect.lock != "" {
		exists, err := i.lock(ctx, tx)
		if err != nil || exists {
			return i.explained("creating the table "+i.table, err)
		}
	}
	for statement := range strings.SplitSeq(i.Schema(), ";\n") {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return i.explained("creating the table "+i.table, err)
		}
	}
	return i.explained("creating the table "+i.table, tx.Commit())
}

// lock makes other calls of Migrate wait until tx ends, and reports whether the table and its index exist.
func (i *Inbox) lock(ctx context.Context, tx *sql.Tx) (exists bool, err error) {
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(i.dialect.lock, i.table)); err != nil {
		return false, err
	}
	schema, index := i.index()
	var n int
	err = tx.QueryRowContext(ctx, fmt.Sprintf(i.dialect.indexes, schema, index)).Scan(&n)
	return n > 0, err
}

// maxRows is the largest number of receipts in a statement: SQLite allows 999 parameters by default.
const maxRows = 400

// insert inserts receipts and returns how many of them were new.
func (i *Inbox) insert(ctx context.Context, tx *sql.Tx, receipts [][]byte) (int, error) {
	now, inserted := time.Now().Unix(), 0
	for some := range slices.Chunk(receipts, maxRows) {
		statement, args := i.dialect.inserting(i.table, some, now)
		result, err := tx.ExecContext(ctx, statement, args...)
		if err != nil {
			return 0, i.explained("inserting receipts", err)
		}
		n, err := result.RowsAffected()
		if err != nil {
			return 0, i.explained("inserting receipts", err)
		}
		inserted += int(n)
	}
	return inserted, nil
}

// find returns the receipts that the table has.
func (i *Inbox) find(ctx context.Context, receipts [][]byte) (found [][]byte, err error) {
	found = [][]byte{}
	for some := range slices.Chunk(receipts, maxRows) {
		args := make([]any, len(some))
		for n, receipt := range some {
			args[n] = receipt
		}
		rows, err := i.db.QueryContext(ctx,
			fmt.Sprintf("SELECT receipt FROM %s WHERE receipt IN %s", i.dialect.quoted(i.table),
				i.dialect.parameters(1, len(some))), args...)
		if err != nil {
			return nil, i.explained("reading receipts", err)
		}
		for rows.Next() {
			var receipt []byte
			if err := rows.Scan(&receipt); err != nil {
				return nil, errors.Join(i.explained("reading receipts", err), rows.Close())
			}
			found = append(found, receipt)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return nil, i.explained("reading receipts", err)
		}
	}
	return found, nil
}

// Seen reports whether the effects of a message were committed. Outside of a handler it needs WithSubscription.
func (i *Inbox) Seen(ctx context.Context, msg pulsar.Message) (bool, error) {
	receipt, err := i.receipt(ctx, msg)
	if err != nil {
		return false, err
	}
	found, err := i.find(ctx, [][]byte{receipt})
	return len(found) > 0, err
}

const (
	pruneRows     = 5000        // how many receipts a transaction of Prune deletes at most
	pruneSomeRows = 200         // how many receipts a handler deletes at most after a message
	pruneEvery    = time.Minute // pause of the handlers after they deleted fewer than pruneSomeRows
)

// Prune deletes the receipts that are older than olderThan and returns their number. It deletes them in many small
// transactions, which do not stop the handlers; several processes may prune at the same time. See WithPruning for the
// choice of olderThan.
func (i *Inbox) Prune(ctx context.Context, olderThan time.Duration) (int64, error) {
	if olderThan <= 0 {
		return 0, invalid("Prune's olderThan", olderThan, "more than 0")
	}
	for total := int64(0); ; {
		n, err := i.prune(ctx, olderThan, pruneRows)
		total += n
		if err != nil || n < pruneRows {
			return total, err
		}
	}
}

// prune deletes up to rows old receipts. It counts them first, and deletes no more than it counted: a DELETE of MySQL
// that finds fewer rows than its limit also waits for the next row, which a handler may be inserting.
func (i *Inbox) prune(ctx context.Context, olderThan time.Duration, rows int) (int64, error) {
	table, parameter := i.dialect.quoted(i.table), i.dialect.parameter(1)
	before := time.Now().Add(-olderThan).Unix()
	err := i.db.QueryRowContext(ctx, fmt.Sprintf("SELECT count(*) FROM (SELECT 1 FROM %s WHERE committed < %s "+
		"LIMIT %d) AS old", table, parameter, rows), before).Scan(&rows)
	if err != nil || rows == 0 {
		return 0, i.explained("pruning receipts", err)
	}
	result, err := i.db.ExecContext(ctx, fmt.Sprintf(i.dialect.prune, table, parameter, rows), before)
	if err != nil {
		return 0, i.explained("pruning receipts", err)
	}
	n, err := result.RowsAffected()
	i.counts.pruned.Add(uint64(max(n, 0)))
	return n, i.explained("pruning receipts", err)
}

// pruneSome deletes only a few receipts after a message, so that no message waits for long. An error is only counted:
// the effects of the message are committed, and a later call tries again.
func (i *Inbox) pruneSome(ctx context.Context) {
	now, next := time.Now(), i.nextPrune.Load()
	if i.pruning == 0 || now.Unix() < next || !i.nextPrune.CompareAndSwap(next, now.Add(pruneEvery).Unix()) {
		return
	}
	switch n, err := i.prune(ctx, i.pruning, pruneSomeRows); {
	case err != nil:
		i.counts.pruneErrors.Add(1)
	case n == pruneSomeRows:
		i.nextPrune.Store(0)
	}
}
