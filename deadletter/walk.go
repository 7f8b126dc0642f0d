package deadletter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

const (
	window      = 200      // how many letters may be under way, and how many may be done but not acknowledged
	windowBytes = 16 << 20 // how many bytes the letters under way may have
	flushEvery  = 50 * time.Millisecond
	flushSize   = 100 // how many letters are acknowledged together
)

// walk reads the letters of the subscription, calls handle for each, and acknowledges those that are done. It
// acknowledges only whole entries. If some letters of a batch are left out, the journal notes the others as done.
type walk struct {
	steps
	j      *journal
	src    *source
	report *Report

	outcomes chan outcome
	entries  []*entry         // entries not acknowledged yet, in order
	letters  map[*Letter]bool // letters under way
	bytes    int              // of the letters under way
	ready    int              // letters done since the last flush
	moved    time.Time        // when a letter was last confirmed, or was begun while no other was under way
	flushed  time.Time        // when flush last looked for entries that are done
	patience time.Duration    // how long acknowledgements may take
	acking   *acking          // nil if nothing is being acknowledged
	alone    bool             // the current letter must be over before the next one begins
}

// steps has the parts in which a replay and a purge differ. All except handle may be nil.
type steps struct {
	// handle starts the work on a letter, and calls done, from any goroutine, when the work has ended. If handle leaves
	// the letter out, it returns why, and does not call done.
	handle   func(ctx context.Context, l *Letter, done func(error)) (left string, err error)
	sync     func() error                                 // called before letters are acknowledged
	pace     func(context.Context) (time.Duration, error) // called before each letter, returns how long it must wait
	progress func(Report)                                 // called after letters were acknowledged
}

func newWalk(j *journal, report *Report, s steps) *walk {
	return &walk{steps: s, j: j, report: report, letters: map[*Letter]bool{}, outcomes: make(chan outcome, window+2)}
}

func (w *walk) through(ctx context.Context, src *source) error {
	w.src, w.moved, w.flushed, w.patience = src, time.Now(), time.Now(), ackPatience
	defer src.close()
	err := w.forward(ctx)
	if err != nil {
		// confirmed letters are still acknowledged; the next call takes the others
		w.patience, w.moved = 5*time.Second, time.Now()
		deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		for len(w.letters) > 0 && deadline.Err() == nil {
			_ = w.settle(deadline, 0)
		}
		for _, e := range w.entries {
			e.left = e.left || e.open > 0 || e.seen < e.size
			e.open, e.closed = 0, true
		}
	}
	return joined(err, w.flushAll(ctx))
}

// joined joins two errors, or returns one of them if they are equal, since a second attempt to write fails with the
// same error.
func joined(err, again error) error {
	if again != nil && errors.Is(err, again) {
		return err
	}
	return errors.Join(err, again)
}

func (w *walk) forward(ctx context.Context) error {
	for {
		wait := time.Duration(0)
		if w.pace != nil {
			var err error
			wait, err = w.pace(ctx)
			if err != nil {
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
		case errors.Is(err, io.EOF):
			w.closeEntry(w.src.end)
			return w.settle(ctx, 0)
		case err != nil:
			return err
		case l == nil:
			if err := errors.Join(w.settle(ctx, len(w.letters)), w.flush(ctx)); err != nil {
				return err
			}
			if len(w.letters) == 0 && wait <= 0 {
				if err := w.flushAll(ctx); err != nil {
					return err
				}
				missing, err := w.src.silent(ctx)
				if err != nil {
					return err
				}
				if missing.Entry > 0 || missing.Ledger > 0 {
					w.report.leave("did not come: incomplete chunks?", &Letter{ID: missing.id(w.src.index)})
				}
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
		if w.ready >= window {
			if err := w.finish(ctx); err != nil {
				return err
			}
		}
	}
}

func (w *walk) begin(ctx context.Context, l *Letter) error {
	e := w.entryOf(l)
	e.seen++
	w.report.Seen++
	if w.j.isDone(l) {
		e.done = setBit(e.done, int(l.pos.Index))
		return nil
	}
	done := func(err error) { w.outcomes <- outcome{e: e, l: l, err: err, index: int(l.pos.Index)} }
	left, err := w.handle(ctx, l, done)
	if left != "" || err != nil {
		e.left = true
		w.report.leave(left, l)
		return err
	}
	if len(w.letters) == 0 {
		w.moved = time.Now()
	}
	e.open++
	w.letters[l] = true
	w.bytes += l.weight()
	most := window
	if w.alone {
		most, w.alone = 0, false
	}
	return w.settle(ctx, most)
}

// prepareForPause waits until all letters are over and acknowledged, and closes the consumer.
func (w *walk) prepareForPause(ctx context.Context) error {
	err := errors.Join(w.settle(ctx, 0), w.flushAll(ctx))
	w.src.close()
	return err
}

// settle waits until at most the given number of letters is under way, and processes the outcomes of the others.
func (w *walk) settle(ctx context.Context, most int) error {
	for {
		select {
		case o := <-w.outcomes:
			if err := w.take(o); err != nil {
				return err
			}
			continue
		default:
		}
		patience := time.Until(w.moved.Add(ackPatience))
		if len(w.letters) == 0 || len(w.letters) <= most && (w.bytes <= windowBytes || len(w.letters) == 1) &&
			patience > 0 {
			return nil
		}
		timer := time.NewTimer(patience)
		select {
		case o := <-w.outcomes:
			timer.Stop()
			if err := w.take(o); err != nil {
				return err
			}
		case <-timer.C:
			return w.unconfirmed()
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

func (w *walk) unconfirmed() error {
	var largest *Letter
	for l := range w.letters {
		if largest == nil || l.weight() > largest.weight() {
			largest = l
		}
	}
	return unconfirmed(len(w.letters), largest.ID, largest.weight(), largest.to)
}

// unconfirmed returns the error for letters without an answer. The broker refuses a letter that is larger than its
// topic allows, and upstream does not report the refusal.
func unconfirmed(letters int, largest string, bytes int, topic string) error {
	return fmt.Errorf("deadletter: the broker did not confirm %d letters within %v; the largest is %s (%d bytes, to "+
		"%s), and a message beyond the topic's maxMessageSize gets no answer",
		letters, ackPatience, largest, bytes, topic)
}

func (w *walk) take(o outcome) error {
	w.moved = time.Now()
	o.e.open--
	delete(w.letters, o.l)
	w.bytes -= o.l.weight()
	if o.err != nil {
		o.e.left = true
		return fmt.Errorf("deadletter: letter %s: %w", o.l.ID, o.err)
	}
	o.e.done, o.e.fresh = setBit(o.e.done, o.index), true
	if w.sync == nil { // with sync, a letter is done only after a call of sync
		w.report.Done++
	} else {
		o.e.written++
	}
	w.ready++
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
