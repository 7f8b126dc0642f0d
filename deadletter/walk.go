package deadletter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

const (
	window      = 200      // letters under way
	windowBytes = 16 << 20 // of them
	flushEvery  = 50 * time.Millisecond
	flushSize   = 100 // letters that are done, and not acknowledged yet
)

// walk goes through the letters of the subscription, has each handled, and acknowledges it after it is done. An entry is
// acknowledged as a whole: of a batch that is left in part the journal remembers what is done.
type walk struct {
	t      *Topic
	j      *journal
	src    *source
	report *Report
	tell   func(Report)

	// handle begins with a letter and has done called, from anywhere, when it is over. Or it returns why the letter is left.
	handle func(ctx context.Context, l *Letter, done func(error)) (left string, err error)
	// sync is called before anything is acknowledged. It may be nil.
	sync func() error
	// pace is called before each letter and returns how long to wait for it. It may be nil.
	pace func(context.Context) (time.Duration, error)

	patience time.Duration // for acknowledgements
	alone    bool          // handle wants the letter to be over before the next begins

	over    chan over
	entries []*entry // not acknowledged yet, in order
	letters int      // under way
	bytes   int
	ready   int // done since the last flush
	moved   time.Time
	flushed time.Time
}

// over is what became of a letter.
type over struct {
	e    *entry
	l    *Letter
	err  error
	seen int // its index
}

// entry is what is acknowledged as one: a letter, or a batch of them.
type entry struct {
	id     pulsar.MessageID
	name   string
	size   int
	seen   int // letters that came
	open   int // under way
	left   bool
	done   []byte // bits
	fresh  bool   // the journal does not have all of done
	closed bool   // no more letters of it come
}

func (w *walk) through(ctx context.Context, src *source) error {
	w.src, w.moved, w.flushed, w.patience = src, time.Now(), time.Now(), ackPatience
	defer src.close()
	err := w.forward(ctx)
	if err != nil {
		// What is confirmed by now is acknowledged. The rest is for the next run.
		w.patience = 5 * time.Second
		deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		for w.letters > 0 && deadline.Err() == nil {
			_ = w.settle(deadline, 0)
		}
		for _, e := range w.entries {
			e.left = e.left || e.open > 0 || e.seen < e.size
			e.open, e.closed = 0, true
		}
	}
	return errors.Join(err, w.flush(ctx))
}

func (w *walk) forward(ctx context.Context) error {
	for {
		wait := time.Duration(0)
		if w.pace != nil {
			var err error
			if wait, err = w.pace(ctx); err != nil {
				return err
			}
		}
		var l *Letter
		var err error
		if wait > 0 {
			err = sleep(ctx, min(wait, flushEvery))
		} else {
			l, err = w.src.next(ctx, flushEvery)
		}
		switch {
		case err == io.EOF:
			w.closeEntry(w.src.end)
			return w.settle(ctx, 0)
		case err != nil:
			return err
		case l == nil:
			if err := errors.Join(w.settle(ctx, w.letters), w.flush(ctx)); err != nil {
				return err
			}
			if w.letters == 0 && wait <= 0 {
				w.src.silent()
			}
			continue
		}
		if err := w.begin(ctx, l); err != nil {
			return err
		}
		if w.ready >= flushSize || time.Since(w.flushed) > flushEvery {
			if err := w.flush(ctx); err != nil {
				return err
			}
		}
	}
}

func (w *walk) begin(ctx context.Context, l *Letter) error {
	e := w.entryOf(l)
	e.seen++
	w.report.Seen++
	if w.j.has(l) {
		e.done = setBit(e.done, int(l.pos.Index))
		return nil
	}
	done := func(err error) { w.over <- over{e: e, l: l, err: err, seen: int(l.pos.Index)} }
	left, err := w.handle(ctx, l, done)
	if left != "" || err != nil {
		e.left = true
		w.report.leave(left, l)
		return err
	}
	if w.letters == 0 {
		w.moved = time.Now()
	}
	e.open++
	w.letters++
	w.bytes += l.weight()
	most := window
	if w.alone {
		most, w.alone = 0, false
	}
	return w.settle(ctx, most)
}

// rest has everything over and acknowledged, and no consumer, for a pause.
func (w *walk) rest(ctx context.Context) error {
	err := errors.Join(w.settle(ctx, 0), w.flush(ctx))
	w.src.close()
	return err
}

// entryOf is the entry that l is in; the one before it has no more letters.
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

// closeEntry is called when all letters before p have come. Those of a batch that have not are acknowledged already, by index,
// unless the walk ends among them.
func (w *walk) closeEntry(p position) {
	if n := len(w.entries); n > 0 && !w.entries[n-1].closed {
		e := w.entries[n-1]
		e.closed = true
		if e.seen < e.size && e.name == entryName(w.src.index, p) && int(p.Index) < e.size-1 {
			e.left = true
		}
	}
}

// settle waits until no more than most letters are under way, and takes what is over.
func (w *walk) settle(ctx context.Context, most int) error {
	for {
		select {
		case o := <-w.over:
			if err := w.take(o); err != nil {
				return err
			}
			continue
		default:
		}
		patience := time.Until(w.moved.Add(ackPatience))
		if w.letters == 0 || w.letters <= most && (w.bytes <= windowBytes || w.letters == 1) && patience > 0 {
			return nil
		}
		timer := time.NewTimer(patience)
		select {
		case o := <-w.over:
			timer.Stop()
			if err := w.take(o); err != nil {
				return err
			}
		case <-timer.C:
			return fmt.Errorf("deadletter: %d letters were not confirmed within %v", w.letters, ackPatience)
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

func (w *walk) take(o over) error {
	w.moved = time.Now()
	o.e.open--
	w.letters--
	w.bytes -= o.l.weight()
	if o.err != nil {
		o.e.left = true
		return fmt.Errorf("deadletter: letter %s: %w", o.l.ID, o.err)
	}
	o.e.done, o.e.fresh = setBit(o.e.done, o.seen), true
	w.report.Done++
	w.ready++
	return nil
}

// flush acknowledges the entries that are done. It goes on for a while when ctx is: what is published should not be so again.
func (w *walk) flush(ctx context.Context) error {
	w.flushed, w.ready = time.Now(), 0
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.patience)
	defer cancel()
	var acks []pulsar.MessageID
	noted, gone := map[string][]byte{}, map[string][]byte{}
	rest := w.entries[:0:0]
	for _, e := range w.entries {
		switch {
		case !e.closed && e.seen < e.size || e.open > 0:
			rest = append(rest, e)
		case e.left:
			if e.fresh {
				noted[e.name] = e.done
			}
		default:
			acks = append(acks, e.id)
			if _, ok := w.j.done[e.name]; ok {
				gone[e.name] = nil
			}
		}
	}
	if len(acks)+len(noted) > 0 {
		if w.sync != nil {
			if err := w.sync(); err != nil {
				return err
			}
		}
		if len(noted) > 0 {
			if err := w.j.append(ctx, record{Done: noted}); err != nil {
				return err
			}
		}
		if err := w.acknowledge(ctx, acks); err != nil {
			return err
		}
		if len(gone) > 0 {
			if err := w.j.append(ctx, record{Done: gone}); err != nil {
				return err
			}
		}
	}
	w.entries = rest
	if w.tell != nil {
		w.tell(*w.report)
	}
	return nil
}

// acknowledge returns when the broker has. It tries again while the broker is away.
func (w *walk) acknowledge(ctx context.Context, ids []pulsar.MessageID) error {
	if len(ids) == 0 {
		return nil
	}
	if w.src.consumer == nil {
		if err := w.src.open(ctx); err != nil {
			return err
		}
	}
	for {
		_, err := within(ctx, func() (struct{}, error) { return struct{}{}, w.src.consumer.AckIDList(ids) }, nil)
		if err == nil {
			return nil
		}
		if sleep(ctx, 200*time.Millisecond) != nil {
			return fmt.Errorf("deadletter: %d letters are done, but could not be acknowledged: %w", len(ids), err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
