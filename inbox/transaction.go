package inbox

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// entry is a message of a batch with its receipt.
type entry struct {
	msg     pulsar.Message
	receipt []byte
	indices []int // in the batch; several if messages have the same key
}

// entries returns the messages of a batch with their receipts. Messages with the same key become one entry.
func (i *Inbox) entries(ctx context.Context, msgs []pulsar.Message) ([]entry, error) {
	all := make([]entry, 0, len(msgs))
	at := make(map[string]int, len(msgs))
	for index, msg := range msgs {
		receipt, err := i.receipt(ctx, msg)
		if err != nil {
			return nil, err
		}
		if n, ok := at[string(receipt)]; ok {
			all[n].indices = append(all[n].indices, index)
			continue
		}
		at[string(receipt)] = len(all)
		all = append(all, entry{msg, receipt, []int{index}})
	}
	return all, nil
}

type function = func(ctx context.Context, tx *sql.Tx, msgs []pulsar.Message) error

// maxRetries is how often, at most, a transaction begins again after transient errors.
const maxRetries = 3

// noTablePause is how long the Worker pauses if the table is missing. Without a pause the Worker would soon make every
// message a dead letter.
const noTablePause = 10 * time.Second

var retryPause = backoff.WithJitter(backoff.Exponential{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond}, 0.5)

// commit commits the effects of f with the receipts of todo. It leaves out the entries whose receipts the table has
// already, and returns the others. An error applies to the returned entries.
func (i *Inbox) commit(ctx context.Context, todo []entry, f function) ([]entry, error) {
	for retries := uint32(0); len(todo) > 0; {
		known, err := i.try(ctx, todo, f)
		switch {
		case err == nil && known == nil:
			i.counts.transactions.Add(1)
			i.counts.receipts.Add(uint64(len(todo)))
			i.counts.duplicates.Add(messagesOf(todo) - uint64(len(todo))) // with the key of another one
			i.pruneSome(ctx)
			return todo, nil
		case err == nil:
			before := messagesOf(todo)
			todo = slices.DeleteFunc(todo, func(e entry) bool { return contains(known, e.receipt) })
			i.counts.duplicates.Add(before - messagesOf(todo))
		case errors.Is(err, ErrNoTable):
			return todo, worker.PauseFor(noTablePause, err)
		case retries == maxRetries || !isTransient(err) || !sleep(ctx, retryPause.Next(retries)):
			return todo, err
		default:
			retries++
			i.counts.retries.Add(1)
		}
	}
	return nil, nil
}

// messagesOf returns how many messages of the batch the entries stand for.
func messagesOf(entries []entry) (n uint64) {
	for _, e := range entries {
		n += uint64(len(e.indices))
	}
	return n
}

// try makes one transaction. If the table has some of the receipts already, try returns these and does not call f.
func (i *Inbox) try(ctx context.Context, todo []entry, f function) (known [][]byte, err error) {
	tx, err := i.db.BeginTx(ctx, i.txOptions)
	if err != nil {
		return nil, i.explained("beginning a transaction", err)
	}
	defer func() { _ = tx.Rollback() }() // without effect after Commit
	receipts := receiptsOf(todo)
	inserted, err := i.insert(ctx, tx, receipts)
	switch {
	case err != nil:
		return nil, err
	case inserted == 0:
		return receipts, nil
	case inserted < len(receipts):
		if err := tx.Rollback(); err != nil {
			return nil, i.explained("rolling back", err)
		}
		return i.find(ctx, receipts)
	}
	msgs := make([]pulsar.Message, len(todo))
	for n, e := range todo {
		msgs[n] = e.msg
	}
	if err := f(ctx, tx, msgs); err != nil && !isEmpty(err) {
		return nil, err
	}
	err = tx.Commit()
	if errors.Is(err, sql.ErrTxDone) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, ErrTransactionEnded
	}
	return nil, i.explained("committing", err)
}

// isEmpty reports whether an error is a BatchError in which no message failed.
func isEmpty(err error) bool {
	each, ok := worker.AsBatchError(err)
	for _, err := range each {
		ok = ok && err == nil
	}
	return ok
}

// receiptsOf returns the receipts in an order that is the same in all transactions, so that no two transactions wait
// for each other.
func receiptsOf(entries []entry) [][]byte {
	receipts := make([][]byte, len(entries))
	for n, e := range entries {
		receipts[n] = e.receipt
	}
	slices.SortFunc(receipts, bytes.Compare)
	return receipts
}

func contains(receipts [][]byte, receipt []byte) bool {
	return slices.ContainsFunc(receipts, func(r []byte) bool { return bytes.Equal(r, receipt) })
}

// sleep waits for d. It reports false if ctx is done before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
