package deadletter

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// ImportOptions configures an Import.
type ImportOptions struct {
	// Encryption encrypts the messages that Import publishes. Without it, Import leaves out letters that were exported
	// or purged with keys, so that no plain text leaks. Default: none.
	Encryption *pulsar.ProducerEncryptionInfo
	// Skip is how many lines to skip: ImportError.Lines of a failed Import. Default: 0.
	Skip int
	// DryRun makes Import change nothing: the Report is that of a real import. Default: false.
	DryRun bool
	// Progress is called after letters were stored, several times a second, and must not block. Default: none.
	Progress func(Report)
}

// Import reads from r the letters that Export or Purge wrote, and publishes them to the dead letter topic, in order,
// each to its old partition. The imported letters have new IDs and publish times. If a letter has no DEAD_LETTER_TIME,
// its new publish time counts as the time of its death. Everything else stays as it was. Import leaves out, and
// reports, letters that it cannot publish unchanged, and letters with a schema of another topic, since schema versions
// differ between topics. If the topic has no subscription, the broker would delete the letters, so Import creates
// Options.Subscription.
//
// Import stops at the first error. Without DryRun, an error after Import has read a line beyond ImportOptions.Skip is
// an *ImportError. It says how many lines are done, so that the next Import can skip them.
func (t *Topic) Import(ctx context.Context, r io.Reader, o ImportOptions) (Report, error) {
	if r == nil || o.Skip < 0 {
		return Report{}, fmt.Errorf("deadletter: reader is %v and ImportOptions.Skip is %d, want a reader, and 0 or "+
			"more", r, o.Skip)
	}
	creates, err := t.guard(ctx)
	if err != nil {
		return Report{}, err
	}
	names, err := t.subscriptions(ctx, t.o.Topic)
	if err != nil {
		return Report{}, err
	}
	partitions, err := t.partitions(ctx, t.o.Topic)
	if err != nil {
		return Report{}, err
	}
	i := &importer{t: t, o: o, partitions: partitions, producers: map[publisherKey]pulsar.Producer{},
		users: map[string]publisherKey{},
		open:  map[int]int{}, next: 1, over: make(chan stored, window)}
	if len(names) == 0 {
		i.report.Creates, i.unkept = creates, true
	}
	defer func() {
		for _, p := range i.producers {
			p.Close()
		}
	}()
	i.report.target(t.o.Topic).Subscriptions = names
	if err = i.read(ctx, r); err == nil {
		err = i.settle(ctx, 0)
	}
	if err != nil {
		// wait for the messages under way, so that the error says correctly which lines are stored
		finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), ackPatience)
		defer cancel()
		for i.pending > 0 && finish.Err() == nil {
			_ = i.settle(finish, 0)
		}
		if !o.DryRun && i.line > o.Skip {
			err = &ImportError{i.undone() - 1, err}
		}
	} else if len(names) > 0 && !o.DryRun {
		err = t.checkKept(ctx)
	}
	return i.report, err
}

// checkKept returns an error if an import has published letters to a topic that was deleted meanwhile, and created
// again without its subscriptions. It subscribes, so that the broker keeps the letters that the new topic has.
func (t *Topic) checkKept(ctx context.Context) error {
	names, err := t.subscriptions(ctx, t.o.Topic)
	if err != nil || len(names) > 0 {
		return err
	}
	consumer, err := t.subscribe(ctx, t.o.Topic, 1)
	if err != nil {
		return err
	}
	consumer.Close()
	return fmt.Errorf("deadletter: %s was deleted during the import, with the letters imported before; "+
		"subscription %s now keeps the later ones", t.o.Topic, t.o.Subscription)
}

// importer is an Import under way.
type importer struct {
	t          *Topic
	o          ImportOptions
	report     Report
	partitions []string
	unkept     bool // the topic has no subscription, so that the broker would delete the messages
	producers  map[publisherKey]pulsar.Producer
	users      map[string]publisherKey // by partition: the producer that published last
	line       int                     // number of the last line that was read
	next       int                     // the first line that was not begun
	pending    int
	bytes      int
	open       map[int]int // bytes of each line that is under way or was refused
	over       chan stored
	shown      time.Time
}

// stored is the outcome of a line.
type stored struct {
	line, bytes int
	err         error
}

// undone returns the first line that is not done.
func (i *importer) undone() int {
	first := i.next
	for line := range i.open {
		first = min(first, line)
	}
	return first
}

func (i *importer) read(ctx context.Context, r io.Reader) error {
	for lines := bufio.NewReader(r); ; {
		text, err := lines.ReadBytes('\n')
		i.line++
		if errors.Is(err, io.EOF) && len(text) == 0 {
			if i.line--; i.line < i.o.Skip {
				return fmt.Errorf("deadletter: ImportOptions.Skip is %d, want at most the %d lines of the reader",
					i.o.Skip, i.line)
			}
			return nil
		} else if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("deadletter: line %d: %w", i.line, err)
		}
		if i.line <= i.o.Skip {
			i.next = i.line + 1
			continue
		}
		l := &Letter{}
		if json.Unmarshal(text, l) != nil || l.parse(l.ID) != nil {
			return fmt.Errorf("deadletter: line %d is not a letter", i.line)
		}
		if err := i.take(ctx, l); err != nil {
			return err
		}
	}
}

// take publishes a letter, or leaves it out.
func (i *importer) take(ctx context.Context, l *Letter) error {
	i.report.Seen++
	left, schema, err := "", pulsar.Schema(nil), error(nil)
	switch {
	case l.Encrypted:
		left = unreadableLine
	case l.Altered:
		left = notText
	case l.Decrypted && i.o.Encryption == nil:
		left = wasEncrypted
	case l.Schema != "" && l.Topic != "" && topicname.Base(l.Topic) != i.t.o.Topic: // versions differ between topics
		left = otherSchema
	default:
		left, schema, err = i.t.schemaOf(ctx, l)
	}
	if err != nil {
		return err
	}
	if left != "" {
		i.report.leave(left, l)
		i.next = i.line + 1
		return nil
	}
	if i.o.DryRun {
		i.next = i.line + 1
		i.report.Done++
		i.report.target(i.t.o.Topic).Count++
		return nil
	}
	if i.unkept {
		consumer, err := i.t.subscribe(ctx, i.t.o.Topic, 1)
		if err != nil {
			return err
		}
		consumer.Close()
		i.unkept = false
	}
	p, err := i.producer(ctx, l, schema)
	if err != nil {
		return err
	}
	m, line, bytes := l.original(), i.line, l.weight()
	m.Schema = schema
	i.pending, i.bytes, i.open[line], i.next = i.pending+1, i.bytes+bytes, bytes, line+1
	publishing.SendAsync(ctx, p, m, func(_ pulsar.MessageID, err error) { i.over <- stored{line, bytes, err} })
	most := window - 1
	if bytes > small || i.o.Encryption != nil { // as in publish: a refusal must be known before the next letter
		most = 0
	}
	return i.settle(ctx, most)
}

// settle waits until at most the given number of letters is under way.
func (i *importer) settle(ctx context.Context, most int) error {
	timeout := time.NewTimer(ackPatience)
	defer timeout.Stop()
	for i.pending > most || i.bytes > windowBytes && i.pending > 0 || len(i.over) > 0 {
		select {
		case s := <-i.over:
			i.pending, i.bytes = i.pending-1, i.bytes-s.bytes
			if s.err != nil {
				return fmt.Errorf("deadletter: line %d: %w", s.line, s.err)
			}
			delete(i.open, s.line)
			i.report.Done++
			i.report.target(i.t.o.Topic).Count++
		case <-timeout.C:
			largest := i.undone()
			for line, bytes := range i.open {
				if bytes > i.open[largest] {
					largest = line
				}
			}
			return unconfirmed(i.pending, fmt.Sprintf("line %d", largest), i.open[largest], i.t.o.Topic)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if i.o.Progress != nil && time.Since(i.shown) > flushEvery {
		i.shown = time.Now()
		i.o.Progress(i.report.clone())
	}
	return nil
}

// producer returns a producer for l. It first waits until the messages of the previous producer for the same partition
// are stored, so that the letters keep their order.
func (i *importer) producer(ctx context.Context, l *Letter, schema pulsar.Schema) (pulsar.Producer, error) {
	topic := i.t.o.Topic
	if n := len(i.partitions); n > 1 || n == 1 && i.partitions[0] != topic {
		p := l.partition
		if p >= n {
			p = JavaStringHash.partition(l, topic, n)
		}
		topic = fmt.Sprintf("%s-partition-%d", topic, p)
	}
	key := publisherKey{topic: topic, batched: inBatches(l, schema)}
	if schema != nil {
		key.schema = l.Schema
	}
	if before, ok := i.users[topic]; ok && before != key {
		if err := i.settle(ctx, 0); err != nil {
			return nil, err
		}
	}
	i.users[topic] = key
	if p := i.producers[key]; p != nil {
		return p, nil
	}
	p, err := i.t.newProducer(ctx, producerOptions(topic, schema, key.batched), i.o.Encryption)
	if err == nil {
		i.producers[key] = p
	}
	return p, err
}

// parse reads the id of a letter.
func (p *place) parse(id string) error {
	parts := strings.Split(id, ":")
	if len(parts) < 3 {
		return errors.New("no id")
	}
	p.pos.Ledger, p.pos.Entry, p.partition = int64(number(parts[0])), int64(number(parts[1])), max(number(parts[2]), 0)
	if p.pos.Ledger < 0 || p.pos.Entry < 0 {
		return errors.New("no id")
	}
	return nil
}
