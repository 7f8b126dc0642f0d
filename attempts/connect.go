package attempts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	clientbackoff "github.com/apache/pulsar-client-go/pulsar/backoff"
	"github.com/apache/pulsar-client-go/pulsar/crypto"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/upstream"
)

// subscription is the log's own subscription. It keeps the broker from deleting frames that are still needed.
const subscription = "attempts"

// pauses are the waits between attempts to reach the topic. The jitter keeps sessions that lost the topic together from
// returning at the same moment.
var pauses = backoff.WithJitter(backoff.Exponential{Min: 100 * time.Millisecond, Max: 10 * time.Second}, 0.5)

// run reads and writes the log until it is closed.
func (l *Log) run() {
	defer close(l.ended)
	defer l.end()
	failures := uint32(0)
	for !l.isOver() {
		began := time.Now()
		err := l.safely()
		if err == nil || l.isOver() {
			return
		}
		if time.Since(began) > time.Minute {
			failures = 0
		}
		l.reportFailure(err)
		pause := time.NewTimer(pauses.Next(failures))
		failures++
		select {
		case <-pause.C:
		case <-l.closing:
		}
		pause.Stop()
	}
}

// safely calls session, and returns a panic as an error: an implementation of pulsar.Client other than
// pulsar-client-go's may panic.
func (l *Log) safely() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return l.session()
}

// isOver reports whether the Log is closed and writes no more.
func (l *Log) isOver() bool {
	select {
	case <-l.closing:
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.life.Err() != nil || l.failure != nil || l.o.ReadOnly
	default:
		return false
	}
}

// reportFailure notes and reports that the topic could not be reached, read or written.
func (l *Log) reportFailure(err error) {
	l.mu.Lock()
	reported := l.failure != nil
	l.failure = err
	l.stats.Failures++
	l.mu.Unlock()
	if !reported {
		l.o.Logger.Warn("attempts: the log cannot be used; until it works again, counts and delays are those of "+
			"this process alone", "topic", l.o.Topic,
			"error", err)
	}
	if l.o.Failed != nil {
		l.o.Failed(err)
	}
}

// link is a connection to the topic: its reader and its writer.
type link struct {
	topic    string
	reader   *upstream.TopicReader
	producer pulsar.Producer         // nil if the Log is read only
	underway chan struct{}           // full while maxUnderway frames wait for an answer
	tasks    sync.WaitGroup          // goroutines that answers of the broker began
	end      context.CancelCauseFunc // ends the link
}

func (c *link) close() {
	if c.reader != nil {
		c.reader.Close()
	}
	if c.producer != nil {
		c.producer.Close()
	}
	c.tasks.Wait()
}

// session reaches the topic, and reads and writes it until that fails, or until the Log is closed.
func (l *Log) session() error {
	c, err := l.connect()
	defer c.close()
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.sessions.begins = true
	l.own.requeue(l.state.records)
	l.mu.Unlock()
	life, end := context.WithCancelCause(l.life)
	defer end(nil)
	c.end = end
	c.underway = make(chan struct{}, maxUnderway)
	var reading sync.WaitGroup
	reading.Go(func() { end(l.follow(life, c)) })
	if c.producer != nil {
		end(l.write(life, c)) // nil when the Log is closed
	}
	reading.Wait()
	if err := context.Cause(life); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// connect makes the reader and the writer of the topic. The reader begins where the previous one ended, or at the last
// checkpoint. connect closes its temporary consumer and reader only when it returns: pulsar-client-go logs an error if
// a consumer is closed before it has asked for messages.
func (l *Log) connect() (c *link, err error) {
	c = &link{topic: l.o.Topic}
	if c.topic, err = firstPartition(l.client, l.o.Topic); err != nil {
		return c, err
	}
	if !l.o.ReadOnly {
		consumer, err := l.subscribe(c.topic)
		if err != nil {
			return c, fmt.Errorf("subscribing: %w", err)
		}
		if consumer != nil {
			defer consumer.Close()
		}
		p, err := l.client.CreateProducer(pulsar.ProducerOptions{Topic: c.topic, DisableBatching: true,
			SendTimeout:             sendTimeout,
			DisableBlockIfQueueFull: true, Properties: map[string]string{"session": l.id.String()}})
		if err != nil { // then p is a typed nil, not nil
			return c, fmt.Errorf("making a producer: %w", err)
		}
		c.producer = p
	}
	from, reader, err := l.beginning(c.topic)
	if reader != nil {
		defer reader.Close()
	}
	if err != nil {
		return c, fmt.Errorf("reading the last frame: %w", err)
	}
	var made atomic.Bool
	r, err := l.client.CreateReader(pulsar.ReaderOptions{Topic: c.topic, SubscriptionName: l.readerName(),
		StartMessageID: from, Decryption: asItIs(),
		BackoffPolicyFunc: func() clientbackoff.Policy {
			if made.Load() {
				l.reconnected()
			}
			return clientbackoff.NewDefaultBackoff()
		}})
	if err != nil {
		return c, fmt.Errorf("making a reader: %w", err)
	}
	c.reader = &upstream.TopicReader{Reader: r}
	made.Store(true)
	return c, nil
}

// firstPartition returns the topic that has the log: topic, or its first partition.
func firstPartition(client pulsar.Client, topic string) (string, error) {
	partitions, err := client.TopicPartitions(topic)
	if err != nil {
		return topic, fmt.Errorf("asking for the topic's partitions: %w", err)
	}
	if len(partitions) > 0 && partitions[0] != "" {
		topic = partitions[0]
	}
	return topic, nil
}

// asItIs makes a reader return encrypted messages as they are. The log writes none, but others may. Without this option
// pulsar-client-go ends the process.
func asItIs() *pulsar.MessageDecryptionInfo {
	return &pulsar.MessageDecryptionInfo{ConsumerCryptoFailureAction: crypto.ConsumerCryptoFailureActionConsume}
}

// readerName returns a new name for each reader. Pulsar-client-go's random names have only five letters: of several
// hundred readers, two might get the same name.
func (l *Log) readerName() string {
	l.readers++
	return fmt.Sprintf("%s-%v-%d", subscription, l.id, l.readers)
}

const sendTimeout = 10 * time.Second

// beginning returns the ID after which to read: that of the last frame that was read, or the checkpoint that the
// topic's last frame names. The caller must close r if it is not nil.
func (l *Log) beginning(topic string) (from pulsar.MessageID, r *upstream.TopicReader, err error) {
	l.mu.Lock()
	last := l.state.last
	l.mu.Unlock()
	if last != (position{}) {
		l.reconnected()
		return last.id(), nil, nil
	}
	reader, err := l.client.CreateReader(pulsar.ReaderOptions{Topic: topic, SubscriptionName: l.readerName(),
		StartMessageID: pulsar.LatestMessageID(), StartMessageIDInclusive: true,
		ReceiverQueueSize: 1, Decryption: asItIs()})
	if err != nil {
		return nil, nil, err
	}
	r = &upstream.TopicReader{Reader: reader}
	if end, err := r.LastMessageID(l.life); err != nil || end.EntryID() < 0 {
		return pulsar.EarliestMessageID(), r, nil //nolint:nilerror // read the topic from its beginning
	}
	ctx, cancel := context.WithTimeout(l.life, lastFrameTime)
	defer cancel()
	msg, err := r.Next(ctx)
	if err != nil {
		if l.life.Err() != nil {
			return nil, r, ErrClosed
		}
		return pulsar.EarliestMessageID(), r, nil //nolint:nilerror // read the topic from its beginning
	}
	f, err := decode(msg.Payload())
	if err != nil || f.checkpoint == (position{}) || !f.checkpoint.before(positionOf(msg.ID())) {
		return pulsar.EarliestMessageID(), r, nil //nolint:nilerror // likewise
	}
	return f.checkpoint.id(), r, nil
}

// lastFrameTime is how long reading the last frame of the topic may take. If it takes longer, the whole topic is read.
const lastFrameTime = 2 * time.Second

func (p position) id() pulsar.MessageID { return pulsar.NewMessageID(p.ledger, p.entry, -1, 0) }

func positionOf(id pulsar.MessageID) position { return position{id.LedgerID(), id.EntryID()} }

// subscribe subscribes to the log's own subscription, and creates it if needed. It returns nil if another session is
// subscribed.
func (l *Log) subscribe(topic string) (pulsar.Consumer, error) {
	c, err := l.client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: subscription,
		Type:                        pulsar.Exclusive,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest, EnableZeroQueueConsumer: true,
		AckWithResponse: true})
	switch {
	case err == nil:
		return c, nil
	case isBusy(err):
		return nil, nil
	}
	return nil, err
}

// isBusy reports whether an error means that another session is subscribed. Only its text shows that: the broker gives
// the same code to a consumer beyond maxConsumersPerTopic.
func isBusy(err error) bool {
	return strings.Contains(err.Error(), "ConsumerBusy") && !strings.Contains(err.Error(), "consumers limit")
}
