package deadletter

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"syscall"
)

// PurgeOptions configures a Purge.
type PurgeOptions struct {
	// Filter chooses the letters. Default: all.
	Filter Filter
	// Export gets the letters as lines of JSON before they are acknowledged; an *os.File is synchronized too. Letters
	// that Import could not bring back are not purged: those that could not be decrypted, and those whose key or
	// properties are not UTF-8. Required unless DryRun is set. With io.Discard all letters are deleted without a copy.
	Export io.Writer
	// DryRun makes Purge change nothing, and report what a purge of the letters that Peek yields would do. Default:
	// false.
	DryRun bool
	// Progress is called after letters were acknowledged, several times a second, and must not block. Default: none.
	Progress func(Report)
}

// Purge acknowledges the letters that are unacknowledged on the subscription when the call begins. It replays none. The
// broker then deletes the letters that no other subscription still needs. Purge stops at the first error. An
// interrupted purge may have exported letters that it did not delete, and have written the last one only in part.
func (t *Topic) Purge(ctx context.Context, o PurgeOptions) (Report, error) {
	if o.DryRun {
		return t.planPurge(ctx, o)
	}
	var report Report
	if o.Export == nil {
		return report, errors.New("deadletter: PurgeOptions.Export is nil, want a writer; io.Discard throws the " +
			"letters away")
	}
	partitions, err := t.partitions(ctx, t.o.Topic)
	if err != nil {
		return report, err
	}
	if _, err := t.guard(ctx); err != nil {
		return report, err
	}
	j, err := t.openJournal(ctx)
	if err != nil {
		return report, err
	}
	defer j.close()
	err = t.purge(ctx, o, j, partitions, &report)
	ctx, cancel := undoContext(ctx)
	defer cancel()
	if j.creates && report.Done == 0 { // nothing was purged, and the new subscription would only keep letters
		err = errors.Join(err, t.unsubscribe(ctx))
	}
	return report, errors.Join(err, j.tidy(ctx))
}

func (t *Topic) purge(ctx context.Context, o PurgeOptions, j *journal, partitions []string, report *Report) error {
	out := bufio.NewWriter(o.Export)
	lines := json.NewEncoder(out)
	handle := func(_ context.Context, l *Letter, done func(error)) (string, error) {
		if !o.Filter.Match(l) {
			return unchosen, nil
		}
		if left := t.unexportable(o.Export, l); left != "" {
			return left, nil
		}
		l.Decrypted = t.decrypts()
		err := lines.Encode(l)
		if err == nil {
			done(nil)
		}
		return "", err
	}
	sync := func() error {
		err := out.Flush()
		if file, ok := o.Export.(interface{ Sync() error }); ok && err == nil {
			if err = file.Sync(); errors.Is(err, syscall.EINVAL) { // a pipe, a terminal
				err = nil
			}
		}
		return err
	}
	for i, partition := range partitions {
		queue := 0
		end, err := t.end(ctx, partition)
		if err == nil {
			end, queue, err = t.shorten(ctx, partition, end)
		}
		if err != nil {
			return err
		}
		w := newWalk(j, report, steps{handle: handle, sync: sync, progress: o.Progress})
		if err := w.through(ctx, t.source(i, partition, end, queue)); err != nil {
			return err
		}
	}
	return nil
}

// planPurge is the dry run of a purge.
func (t *Topic) planPurge(ctx context.Context, o PurgeOptions) (report Report, err error) {
	report.Creates, err = t.guard(ctx)
	if err != nil {
		return report, err
	}
	for l, err := range t.Peek(ctx, 0) {
		if err != nil {
			return report, err
		}
		report.Seen++
		if !o.Filter.Match(&l) {
			continue
		}
		if left := t.unexportable(o.Export, &l); left != "" {
			report.leave(left, &l)
			continue
		}
		report.Done++
	}
	return report, nil
}

// unexportable returns why a letter cannot be exported to w, or "" if it can. A purge would lose such a letter.
func (t *Topic) unexportable(w io.Writer, l *Letter) string {
	switch {
	case w == io.Discard:
		return ""
	case l.Encrypted && t.decrypts():
		return unreadable
	case l.Encrypted:
		return sealed
	case !l.isUTF8():
		return notText
	}
	return ""
}
