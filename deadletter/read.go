package deadletter

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/upstream"
)

// Peek yields the first n letters, or all if n is 0, partition by partition, in order. It acknowledges none. With an
// admin API it yields the letters that the subscription has not acknowledged, or all stored letters if the subscription
// does not exist yet. Letters that arrive during the call may be missing. After an error it yields nothing more.
func (t *Topic) Peek(ctx context.Context, n int) iter.Seq2[Letter, error] {
	return func(yield func(Letter, error) bool) {
		seen := 0
		err := t.read(ctx, func(l *Letter) bool {
			seen++
			return yield(*l, nil) && seen != n
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(Letter{}, err)
		}
	}
}

// Letter returns the letter with an ID. It begins to read at the letter's entry. A letter in chunks may not be found
// there; then Letter reads all letters that Peek yields. ErrNoLetter says that Peek yields no such letter: the letter
// was replayed, purged or deleted, or id is not the ID of a letter.
func (t *Topic) Letter(ctx context.Context, id string) (Letter, error) {
	partitions, err := t.partitions(ctx, t.o.Topic)
	if err != nil {
		return Letter{}, err
	}
	var p position
	var partition int
	if n, _ := fmt.Sscanf(id, "%d:%d:%d:%d", &p.Ledger, &p.Entry, &partition, &p.Index); n < 3 ||
		max(partition, 0) >= len(partitions) {
		return Letter{}, fmt.Errorf("%w: id %q of %s, want the ID of a Letter", ErrNoLetter, id, t.o.Topic)
	}
	partition = max(partition, 0) // clients write -1 for the partition of an unpartitioned topic
	replayed, err := t.readJournal(ctx)
	if err != nil {
		return Letter{}, err
	}
	done, err := t.acknowledged(ctx, partitions[partition], t.o.Subscription)
	if err != nil {
		return Letter{}, err
	}
	if done.includes(p) {
		return Letter{}, fmt.Errorf("%w: letter %s of %s was replayed or purged", ErrNoLetter, id, t.o.Topic)
	}
	var found Letter
	tail, err := t.tail(ctx, partitions[partition], pulsar.NewMessageID(p.Ledger, p.Entry-1, -1, 0), 1)
	if err != nil {
		return Letter{}, err
	}
	err = tail.drain(ctx, func(msg pulsar.Message) error {
		l := newLetter(t.o.Topic, partition, msg)
		if l.ID == id && !replayed.isDone(l) {
			found = *l
		}
		if found.ID != "" || p.before(l.pos) {
			return errEnough
		}
		return nil
	})
	tail.close()
	if err != nil && !errors.Is(err, errEnough) || found.ID != "" {
		return found, ignore(err, errEnough)
	}
	for l, err := range t.Peek(ctx, 0) {
		if err != nil || l.hasID(id) {
			return l, err
		}
	}
	return Letter{}, fmt.Errorf("%w: letter %s of %s", ErrNoLetter, id, t.o.Topic)
}

// ignore returns nil if errors.Is(err, ignored), and err otherwise.
func ignore(err, ignored error) error {
	if errors.Is(err, ignored) {
		return nil
	}
	return err
}

// Export writes letters to w, as lines of JSON, and returns their number, or 0 if w fails. It writes the letters that
// Peek yields and filter chooses, and acknowledges none. Import leaves out exported letters whose key or properties are
// not UTF-8, and those that are still encrypted.
func (t *Topic) Export(ctx context.Context, w io.Writer, filter Filter) (n int, err error) {
	out := bufio.NewWriter(w)
	lines := json.NewEncoder(out)
	defer func() {
		if failed := out.Flush(); failed != nil {
			n, err = 0, joined(err, failed)
		}
	}()
	for l, err := range t.Peek(ctx, 0) {
		if err != nil {
			return n, err
		}
		if !filter.Match(&l) {
			continue
		}
		l.Decrypted, l.Altered = t.decrypts() && !l.Encrypted, !l.isUTF8()
		if err := lines.Encode(&l); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// errEnough ends a read when visit has returned false.
var errEnough = errors.New("enough")

// read visits the letters of every partition until visit returns false.
func (t *Topic) read(ctx context.Context, visit func(*Letter) bool) error {
	partitions, err := t.partitions(ctx, t.o.Topic)
	if err != nil {
		return err
	}
	replayed, err := t.readJournal(ctx)
	if err != nil {
		return err
	}
	for i, partition := range partitions {
		done, err := t.acknowledged(ctx, partition, t.o.Subscription)
		if err != nil {
			return err
		}
		from := pulsar.EarliestMessageID()
		if done.exists && done.mark.Entry >= 0 {
			from = pulsar.NewMessageID(done.mark.Ledger, done.mark.Entry, -1, 0)
		}
		tail, err := t.tail(ctx, partition, from, done.queue())
		if err != nil {
			return err
		}
		err = tail.drain(ctx, func(msg pulsar.Message) error {
			l := newLetter(t.o.Topic, i, msg)
			if done.includes(l.pos) || replayed.isDone(l) || visit(l) {
				return nil
			}
			return errEnough
		})
		tail.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// tail reads a topic to its end.
type tail struct {
	reader *upstream.TopicReader
	open   func(ctx context.Context, from pulsar.MessageID) (*upstream.TopicReader, error)
	quiet  time.Duration // how long Next waits for a message that may never come
	at     position      // of the last message that was read
}

// tail returns a tail that reads the messages after start.
func (t *Topic) tail(ctx context.Context, topic string, start pulsar.MessageID, queue int) (*tail, error) {
	open := func(ctx context.Context, from pulsar.MessageID) (*upstream.TopicReader, error) {
		decryption := *t.o.Decryption // upstream modifies it
		reader, err := upstream.Within(ctx, func() (pulsar.Reader, error) {
			return t.client.CreateReader(pulsar.ReaderOptions{Topic: topic, StartMessageID: from,
				Decryption: &decryption, ReceiverQueueSize: queue, ExpireTimeOfIncompleteChunk: chunkPatience})
		}, pulsar.Reader.Close)
		if err != nil {
			return nil, fmt.Errorf("deadletter: reading %s: %w", topic, err)
		}
		return &upstream.TopicReader{Reader: reader}, nil
	}
	reader, err := open(ctx, start)
	if err != nil {
		return nil, err
	}
	return &tail{reader, open, t.quiet, position{start.LedgerID(), start.EntryID(), max(start.BatchIdx(), 0)}}, nil
}

// reopen replaces the reader with a new one, since the broker now and then stops sending to a reader.
func (r *tail) reopen(ctx context.Context) error {
	index := r.at.Index
	if r.at.Entry < 0 {
		index = -1
	}
	reader, err := r.open(ctx, pulsar.NewMessageID(r.at.Ledger, r.at.Entry, index, 0))
	if err != nil {
		return err
	}
	r.close()
	r.reader = reader
	return nil
}

func (r *tail) close() { r.reader.Close() }

// last returns the position of the topic's last message.
func (r *tail) last(ctx context.Context) (position, error) {
	id, err := r.reader.LastMessageID(ctx)
	if err != nil {
		return position{}, fmt.Errorf("deadletter: %w", err)
	}
	return positionOf(id), nil
}

var errVanished = errors.New("deadletter: letters vanished during the call, since the topic was deleted or emptied; " +
	"another call takes those that are left")

// drain visits all messages that the topic has when drain is called. If no more messages come, not even to new readers,
// it gives up on the last ones, which may be chunks of an incomplete message. If the topic does not have them any more,
// it returns an error.
func (r *tail) drain(ctx context.Context, visit func(pulsar.Message) error) error {
	last, err := r.last(ctx)
	if err != nil {
		return err
	}
	for patience := 3; r.at.before(last) && patience > 0; {
		wait, cancel := context.WithTimeout(ctx, r.quiet)
		msg, err := r.reader.Next(wait)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			patience--
			now, err := r.last(ctx)
			if err != nil { // the broker is away
				return err
			}
			if now.before(last) {
				return errVanished
			}
			if err := r.reopen(ctx); err != nil {
				return err
			}
			continue
		case err != nil:
			return fmt.Errorf("deadletter: %w", err)
		}
		patience = 3
		r.at = positionOf(msg.ID())
		if err := visit(msg); err != nil {
			return err
		}
	}
	return nil
}
