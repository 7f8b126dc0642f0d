package deadletter

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/upstream"
)

// outcome is the result of the work on a letter.
type outcome struct {
	e     *entry
	l     *Letter
	err   error
	index int // of the letter in its batch
}

// entry is a letter, or a batch of letters, that is acknowledged as a whole.
type entry struct {
	id     pulsar.MessageID
	name   string
	size   int
	seen   int    // letters of the entry that were read
	open   int    // letters of the entry that are under way
	left   bool   // a letter of the entry stays in the topic
	done   []byte // a bit for each letter that is done
	fresh  bool   // done has bits that the journal lacks
	closed bool   // no more letters of the entry come

	written int // letters of a purge that are not counted as done yet
}

// entryOf returns the entry of l. If the entry is new, entryOf closes the previous entry.
func (w *walk) entryOf(l *Letter) *entry {
	name := entryName(l.partition, l.pos)
	if n := len(w.entries); n > 0 && w.entries[n-1].name == name && !w.entries[n-1].closed {
		return w.entries[n-1]
	}
	w.closeEntry(l.pos)
	e := &entry{id: l.id, name: name, size: l.batch}
	if !l.chunked { // the whole batch
		e.id = pulsar.NewMessageID(l.pos.Ledger, l.pos.Entry, -1, l.id.PartitionIdx())
	}
	w.entries = append(w.entries, e)
	return e
}

// closeEntry closes the last entry, since all letters before p have come. Letters of the entry's batch that did not
// come are already acknowledged, by index. But if p is in the middle of the batch, the walk ends there, and the rest of
// the batch stays in the topic.
func (w *walk) closeEntry(p position) {
	if n := len(w.entries); n > 0 && !w.entries[n-1].closed {
		e := w.entries[n-1]
		e.closed = true
		if e.seen < e.size && e.name == entryName(w.src.index, p) && int(p.Index) < e.size-1 {
			e.left = true
		}
	}
}

// acking is an acknowledgement under way. The walk continues with other letters at the same time, so that a far broker
// does not slow it down.
type acking struct {
	over    chan error
	cancel  context.CancelFunc
	gone    map[string][]byte // batches that the journal can forget when they are acknowledged
	written int
}

// flush begins to acknowledge the entries that are done, unless an acknowledgement is under way. An acknowledgement
// continues for a while after ctx is done, so that published letters are not published again.
func (w *walk) flush(ctx context.Context) error {
	if w.acking != nil {
		select {
		case err := <-w.acking.over:
			if err := w.acked(ctx, err); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	w.flushed, w.ready = time.Now(), 0
	ctx = context.WithoutCancel(ctx)
	limited, cancel := context.WithTimeout(ctx, w.patience)
	defer cancel()
	var acks []pulsar.MessageID
	noted, gone := map[string][]byte{}, map[string][]byte{}
	rest, written := w.entries[:0:0], 0
	for _, e := range w.entries {
		switch {
		case !e.closed && e.seen < e.size || e.open > 0:
			rest = append(rest, e)
		case e.left:
			if e.fresh {
				noted[e.name] = e.done
			}
			written += e.written
		default:
			acks = append(acks, e.id)
			written += e.written
			if _, ok := w.j.done[e.name]; ok {
				gone[e.name] = nil
			}
		}
	}
	if len(acks)+len(noted) > 0 && w.sync != nil {
		if err := w.sync(); err != nil {
			return err
		}
	}
	if len(noted) > 0 {
		if err := w.j.append(limited, record{Done: noted}); err != nil {
			return err
		}
	}
	w.entries = rest
	if len(acks) == 0 {
		w.report.Done += written
		w.showProgress()
		return nil
	}
	if w.src.consumer == nil {
		if err := w.src.open(limited); err != nil {
			return err
		}
	}
	consumer := w.src.consumer
	acknowledging, stop := context.WithTimeout(ctx, w.patience)
	w.acking = &acking{make(chan error, 1), stop, gone, written}
	go func(over chan<- error) { over <- acknowledge(acknowledging, consumer, acks) }(w.acking.over)
	return nil
}

// finish waits until nothing is being acknowledged.
func (w *walk) finish(ctx context.Context) error {
	if w.acking == nil {
		return nil
	}
	timer := time.AfterFunc(w.patience, w.acking.cancel)
	defer timer.Stop()
	return w.acked(ctx, <-w.acking.over)
}

// acked notes the outcome of an acknowledgement. The journal then forgets the acknowledged batches.
func (w *walk) acked(ctx context.Context, err error) error {
	a := w.acking
	w.acking = nil
	a.cancel()
	if err != nil {
		return err
	}
	if len(a.gone) > 0 {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.patience)
		defer cancel()
		if err := w.j.append(limited, record{Done: a.gone}); err != nil {
			return err
		}
	}
	w.report.Done += a.written
	w.showProgress()
	return nil
}

func (w *walk) showProgress() {
	if w.progress != nil {
		w.progress(w.report.clone())
	}
}

// flushAll acknowledges all entries that are done, and returns when the broker has confirmed it.
func (w *walk) flushAll(ctx context.Context) error {
	if err := w.finish(ctx); err != nil {
		return err
	}
	if err := w.flush(ctx); err != nil {
		return err
	}
	return w.finish(ctx)
}

// closedText is part of the error of a closed consumer. pulsar-client-go has no type for this error.
const closedText = "consumer state is closed"

// acknowledge acknowledges ids, and returns when the broker has confirmed that. While the broker is away, it tries
// again. If the client was closed, it returns an error at once.
func acknowledge(ctx context.Context, consumer pulsar.Consumer, ids []pulsar.MessageID) error {
	for {
		_, err := upstream.Within(ctx, func() (struct{}, error) { return struct{}{}, consumer.AckIDList(ids) }, nil)
		if err == nil {
			return nil
		}
		if strings.Contains(err.Error(), closedText) || sleep(ctx, 200*time.Millisecond) != nil {
			return fmt.Errorf("deadletter: %d letters are done, but could not be acknowledged: %w", len(ids), err)
		}
	}
}
