package deadletter

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Replay publishes letters again, and acknowledges each after the broker has confirmed the message. It stops at the
// first error. It replays the letters that are unacknowledged on the subscription when it begins; later ones are for
// the next replay. It keeps the order of each partition and of each key.
//
// Replay keeps everything that the sender set: payload, null value, key, ordering key, event time, schema and
// properties, including the origin and the trace context. It removes EXCEPTION_*, REDELIVERY_COUNT, NACK_COUNT,
// ATTEMPT_COUNT, ORIGIN_PUBLISH_TIME, DEAD_LETTER_TIME, DELAY_LEVEL and DELAY_TIME, sets RECONSUMETIMES to 0, and adds
// REPLAY_COUNT, REPLAY_RUN and REPLAY_TOPIC. A letter that cannot be published in this form is left out and reported.
//
// If ctx is done, the process dies or the broker is lost, the next Replay with the same options continues the run, and
// no letter is lost. It publishes once more the letters that were published but not acknowledged, a few hundred at
// most. A broker that deduplicates messages of the target topic drops these copies.
func (t *Topic) Replay(ctx context.Context, o ReplayOptions) (Report, error) {
	o, err := t.checked(o)
	if err != nil {
		return Report{}, err
	}
	if o.DryRun {
		return t.planReplay(ctx, o)
	}
	partitions, err := t.partitions(ctx, t.o.Topic)
	if err != nil {
		return Report{}, err
	}
	if _, err := t.guard(ctx); err != nil {
		return Report{}, err
	}
	j, err := t.openJournal(ctx)
	if err != nil {
		return Report{}, err
	}
	defer j.close()
	r := &replay{t: t, o: o, j: j, pacer: newPacer(o.Rate), publishers: map[publisherKey]*publisher{},
		users:   map[string]publisherKey{},
		refused: map[string]error{}, limits: map[string]int{}}
	defer r.closePublishers()
	defer r.closeCanary()
	if err = r.run(ctx, partitions); err == nil {
		err = r.report.missed()
	}
	if r.isWithoutEffect() {
		err = errors.Join(err, r.undo(ctx, err != nil))
	}
	return r.report, err
}

func (r *replay) run(ctx context.Context, partitions []string) error {
	if err := r.begin(ctx, partitions); err != nil {
		return err
	}
	for i, partition := range partitions {
		if err := r.partition(ctx, i, partition); err != nil {
			return err
		}
	}
	r.report.Arrived = r.arrived(ctx, partitions)
	if err := r.j.append(ctx, record{Over: r.j.run.ID}); err != nil {
		return err
	}
	if r.isWithoutEffect() { // undo tidies
		return nil
	}
	return r.j.tidy(ctx)
}

// replay is a run in this process.
type replay struct {
	t      *Topic
	o      ReplayOptions
	j      *journal
	w      *walk
	begun  *run // the run that this call began; nil if it continues an earlier one
	report Report

	publishers map[publisherKey]*publisher
	users      map[string]publisherKey // by topic: the producer that published last
	refused    map[string]error        // by topic and schema version: why no producer could be created
	limits     map[string]int          // by topic: the largest allowed message, in bytes
	// letters that were left out for a reason that may not hold next time; they are written to the journal before the
	// next letter is published
	stay    []stay
	leaves  bool // the previous letter is the last one in stay
	pacer   pacer
	sent    int
	dropped atomic.Int64 // messages that the broker dropped as duplicates
	canary  *canary
	names   sync.Map // IDs of the canary's letters, by the origin IDs that their copies may have
}

// begin continues the run in the journal, or begins a new one.
func (r *replay) begin(ctx context.Context, partitions []string) error {
	var err error
	r.o, err = r.t.directed(ctx, r.o, r.j.run)
	if err != nil {
		return err
	}
	options := r.o.decisive()
	if old := r.j.run; old != nil && !r.o.New {
		if !bytes.Equal(old.Options, options) {
			return r.t.unfinished(old)
		}
		r.report.Run, r.report.Resumed = old.ID, true
		return r.watchAgain(ctx)
	}
	id := make([]byte, 6)
	_, _ = rand.Read(id) // never fails
	begun := &run{ID: hex.EncodeToString(id), Started: time.Now().UTC(), Options: options, Ends: map[string]position{}}
	left := r.o.Max
	for i, partition := range partitions {
		end, err := r.t.end(ctx, partition)
		if err == nil && r.o.Max > 0 {
			put(&begun.Tops, partitionName(i), end)
			end, left, err = r.nth(ctx, i, partition, end, left)
		}
		if err != nil {
			return err
		}
		begun.Ends[partitionName(i)] = end
	}
	first := record{Run: begun}
	if old := r.j.run; old != nil {
		first.Over = old.ID
	}
	r.j.enqueue(first) // it is not written before there is a letter to publish
	r.begun, r.report.Run = begun, begun.ID
	return nil
}

// nth returns the position of a partition's nth letter that can be replayed. If there are fewer than n, it returns the
// position of the last of them, and how many are missing.
func (r *replay) nth(ctx context.Context, i int, partition string, end position, n int) (position, int, error) {
	at := position{-1, -1, 0}
	end, queue, err := r.t.shorten(ctx, partition, end)
	if err != nil {
		return at, n, err
	}
	src := r.source(i, partition, end, queue)
	defer src.close()
	for n > 0 {
		l, err := src.next(ctx, flushEvery)
		switch {
		case errors.Is(err, io.EOF):
			return at, n, nil
		case err != nil:
			return at, n, err
		case l == nil:
			if _, err := src.silent(ctx); err != nil {
				return at, n, err
			}
			continue
		}
		left, _, err := r.t.check(ctx, &r.o, l)
		if err != nil {
			return at, n, err
		}
		if left == "" && !r.j.isDone(l) {
			at, n = l.pos, n-1
		}
	}
	return at, n, nil
}

func (r *replay) source(i int, partition string, end position, queue int) *source {
	if r.o.Rate > 0 { // or else chunks would wait too long in the receiver queue
		queue = int(min(max(r.o.Rate*60, 1), float64(queue)))
	}
	return r.t.source(i, partition, end, queue)
}

func (r *replay) partition(ctx context.Context, i int, partition string) error {
	end, ok := r.j.run.Ends[partitionName(i)]
	if !ok { // the partition was added after the run had begun
		return nil
	}
	end, queue, err := r.t.shorten(ctx, partition, end)
	if err != nil {
		return err
	}
	r.w = newWalk(r.j, &r.report, steps{handle: r.handle, pace: r.pace, progress: r.o.Progress})
	r.stay, r.leaves = nil, false
	return r.w.through(ctx, r.source(i, partition, end, queue))
}

// pace is called before each letter, and returns how long the letter must wait.
func (r *replay) pace(ctx context.Context) (time.Duration, error) {
	if r.o.Canary > 0 && r.sent >= r.o.Canary && !r.j.sound {
		if err := r.w.prepareForPause(ctx); err != nil {
			return 0, err
		}
		if err := r.awaitCanary(ctx); err != nil {
			return 0, err
		}
	}
	return r.pacer.wait(), nil
}

func (r *replay) handle(ctx context.Context, l *Letter, done func(error)) (left string, err error) {
	left, schema, err := r.t.check(ctx, &r.o, l)
	if err != nil || left == unchosen {
		return left, err
	}
	if why := r.j.whyLeft(l); why != "" { // later letters may already be published
		r.leaves = false
		return why, nil
	}
	var topic string
	if left == "" {
		topic, left, err = r.t.topicFor(ctx, &r.o, l, &r.report)
		if err != nil {
			return "", err
		}
	}
	if left != "" {
		r.leave(left, l)
		return left, nil
	}
	r.leaves = false
	if len(r.stay) > 0 {
		r.j.enqueue(record{Stay: map[string][]stay{partitionName(l.partition): r.stay}})
		r.stay = nil
	}
	l.to = topic
	out := l.edited(r.o.Edit)
	p, err := r.publisher(ctx, topic, out, schema)
	if err != nil {
		left = r.o.refusal(err)
		if left != "" {
			r.leave(left, l)
			return left, nil
		}
		return "", err
	}
	if r.o.Canary > 0 && !r.j.sound && r.sent < r.o.Canary {
		if err := r.watch(ctx, topic, l); err != nil {
			return "", err
		}
		if l.OriginID != "" {
			r.names.Store(l.OriginID, l.ID)
		}
	}
	if err := r.j.flush(ctx); err != nil {
		return "", err
	}
	r.pacer.took()
	r.sent++
	r.report.target(topic).Count++
	return "", r.publish(ctx, p, out, schema, done)
}

// leave notes a letter that was left out for a reason that may not hold next time. When the run is continued, it must
// not publish the letter: later letters are already published, and a broker that deduplicates would drop this one.
func (r *replay) leave(why string, l *Letter) {
	switch last := len(r.stay) - 1; {
	case !slices.Contains(curable, why):
		r.leaves = false
	case r.leaves && last >= 0 && r.stay[last].Why == why:
		r.stay[last].To = l.pos
	default:
		r.stay = append(r.stay, stay{l.pos, l.pos, why})
		r.leaves = true
	}
}
