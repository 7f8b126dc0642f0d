package inbox

import (
	"context"
	"database/sql"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/worker"
)

// Handler returns a handler for worker.New that calls f in a transaction with the receipt of the message. f makes its
// effects with tx, and leaves commit and rollback to the Inbox. If f returns an error or panics, the transaction is
// rolled back, and the error decides how to settle the message, as in any handler. After a deadlock, a serialization
// failure or a busy database the transaction and f run again after a short pause, up to three times.
//
// If two consumers have the same message, the handler of the second waits for the transaction of the first. If that
// transaction is committed, the second handler returns nil. If it is rolled back, the second handler calls f.
//
// If ctx is done before the commit, the transaction is rolled back. If the connection to the database breaks during a
// commit, the handler returns an error although the effects may have been committed. When the message comes back, its
// receipt shows whether they were.
func (i *Inbox) Handler(f func(ctx context.Context, tx *sql.Tx, msg pulsar.Message) error) worker.Handler {
	return func(ctx context.Context, msg pulsar.Message) error {
		todo, err := i.entries(ctx, []pulsar.Message{msg})
		if err != nil {
			return err
		}
		_, err = i.commit(ctx, todo, func(ctx context.Context, tx *sql.Tx, msgs []pulsar.Message) error {
			return f(ctx, tx, msgs[0])
		})
		return err
	}
}

// BatchHandler is Handler for worker.NewBatch: one transaction has the effects and the receipts of a batch. f gets the
// messages whose receipts the table does not have yet. Messages of a batch with the same key are one message; f gets
// the first.
//
// If f returns a worker.BatchError, the transaction is rolled back, and f is called again, in a new transaction, with
// the messages that the BatchError does not name. Only the messages that it names fail, each with its own error. Any
// other error fails all messages that f got.
//
// After a failed statement, Postgres refuses all later statements of the transaction. So a BatchError may also name
// messages whose statements were only refused. These messages do not fail, and f gets them again.
func (i *Inbox) BatchHandler(f func(ctx context.Context, tx *sql.Tx, msgs []pulsar.Message) error) worker.BatchHandler {
	return func(ctx context.Context, msgs []pulsar.Message) error {
		todo, err := i.entries(ctx, msgs)
		if err != nil {
			return err
		}
		failed := worker.BatchError{}
		for len(todo) > 0 {
			var tried []entry
			tried, err = i.commit(ctx, todo, f)
			if err == nil {
				break
			}
			each, ok := failures(err, len(tried))
			if !ok {
				if len(tried) == len(msgs) {
					return err // the Worker may halve the batch
				}
				for n := range tried {
					each[n] = err
				}
			}
			todo = nil
			for n, e := range tried {
				if each[n] == nil {
					todo = append(todo, e)
					continue
				}
				for _, index := range e.indices {
					failed[index] = each[n]
				}
			}
		}
		if len(failed) == 0 {
			return nil
		}
		return failed
	}
}

// failures returns the errors of a BatchError by index. It reports false if err is no BatchError, or if an index of the
// BatchError is not between 0 and n-1. Messages that Postgres refused because of an earlier error are left out, unless
// there are only such messages.
func failures(err error, n int) (each worker.BatchError, ok bool) {
	found, ok := worker.AsBatchError(err)
	each, refused := worker.BatchError{}, worker.BatchError{}
	for index, err := range found {
		switch {
		case index < 0 || index >= n:
			return worker.BatchError{}, false
		case err == nil:
		case codeOf(err) == abortedTransaction:
			refused[index] = err
		default:
			each[index] = err
		}
	}
	if len(each) == 0 {
		each = refused
	}
	return each, ok
}
