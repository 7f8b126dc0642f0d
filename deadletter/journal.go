package deadletter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/internal/upstream"
)

// The journal is another topic. It has the state that the subscription's cursor cannot hold: the replay under way and,
// for each batch that is only partly done, which of its letters are done. It is a log: no record contradicts an earlier
// one, so a crash between two records does no harm. When there is nothing to remember, the journal's subscription is
// removed, and the broker deletes the topic.

// journal is open while a replay or a purge is under way. Its consumer receives nothing. The consumer's subscription
// keeps the records, and serves as a lock: it allows only one consumer.
type journal struct {
	state
	pending   record // already in state, and to be written before the next record
	remembers bool   // the records have a run, or batches that are done in part
	removed   bool   // the journal's subscription is removed
	creates   bool   // Options.Subscription did not exist before, according to the admin API

	t        *Topic
	topic    string // with its partition
	lock     pulsar.Consumer
	producer pulsar.Producer
}

func (t *Topic) journalTopic() string { return t.o.Topic + "-" + t.o.Subscription }

// readJournal returns the state in the journal, and does not lock it. If the admin API says that there is no journal,
// the state is empty.
func (t *Topic) readJournal(ctx context.Context) (*state, error) {
	s := &state{}
	if names, err := t.subscriptions(ctx, t.journalTopic()); errors.Is(err, ErrNoTopic) ||
		err == nil && len(names) == 0 {
		return s, nil
	} else if err != nil {
		return nil, err
	}
	topic, err := t.firstPartition(ctx, t.journalTopic())
	if err != nil {
		return nil, err
	}
	return s, t.loadJournal(ctx, topic, s)
}

// firstPartition returns the topic, or its first partition if it is partitioned. The request for the partitions may
// make the broker create the topic.
func (t *Topic) firstPartition(ctx context.Context, topic string) (string, error) {
	partitions, err := upstream.Within(ctx, func() ([]string, error) { return t.client.TopicPartitions(topic) }, nil)
	if err != nil || len(partitions) == 0 {
		return topic, err
	}
	return partitions[0], nil
}

// makeJournal creates the journal if it is missing, and returns the topic or partition that has the records. The admin
// API creates an unpartitioned topic under any policy of the broker. If the admin API refuses, the broker may create
// the topic on use, perhaps with partitions.
func (t *Topic) makeJournal(ctx context.Context) (topic string, err error) {
	topic = t.journalTopic()
	if _, missing := t.subscriptions(ctx, topic); errors.Is(missing, ErrNoTopic) {
		err = admin.API(t.o.Admin).Call(ctx, http.MethodPut, admin.Topic(topic), nil, nil)
		if admin.HasStatus(err, http.StatusConflict) { // another process has created it
			err = nil
		}
	}
	first, failed := t.firstPartition(ctx, topic)
	if failed != nil {
		return topic, fmt.Errorf("deadletter: %s, which stores the state of a replay, cannot be created: %w", topic,
			errors.Join(failed, err))
	}
	return first, nil
}

func (t *Topic) loadJournal(ctx context.Context, topic string, s *state) error {
	tail, err := t.tail(ctx, topic, pulsar.EarliestMessageID(), queueSize)
	if err != nil {
		return err
	}
	defer tail.close()
	return tail.drain(ctx, func(msg pulsar.Message) error {
		_, letter := msg.Properties()[PropertyReplayRun] // a replay had this topic as its target
		var r record
		if err := json.Unmarshal(msg.Payload(), &r); err == nil && !letter {
			s.apply(r)
		}
		return nil
	})
}

// openJournal opens the journal, and locks other replays and purges out until it is closed.
func (t *Topic) openJournal(ctx context.Context) (*journal, error) {
	topic, err := t.makeJournal(ctx)
	if err != nil {
		return nil, err
	}
	lock, err := insist(ctx, lockPatience, func() (pulsar.Consumer, error) {
		return t.client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: t.o.Subscription,
			Type:                        pulsar.Exclusive,
			SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest, ReceiverQueueSize: 1})
	}, pulsar.Consumer.Close)
	if err != nil {
		if isBusy(err) {
			return nil, fmt.Errorf("%w: %s", ErrBusy, t.o.Topic)
		}
		return nil, fmt.Errorf("deadletter: subscribing to %s, which stores the state of a replay: %w", topic, err)
	}
	j := &journal{t: t, topic: topic, lock: lock}
	j.producer, err = upstream.Within(ctx, func() (pulsar.Producer, error) {
		return t.client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	}, pulsar.Producer.Close)
	if err == nil {
		err = t.loadJournal(ctx, topic, &j.state)
	} else {
		j.producer = nil // upstream returns an error together with a producer that is not nil
	}
	if err != nil {
		j.close()
		return nil, fmt.Errorf("deadletter: opening %s: %w", topic, err)
	}
	j.remembers = j.isNeeded()
	consumer, err := j.subscribe(ctx)
	if err != nil {
		limited, cancel := undoContext(ctx)
		defer cancel()
		err = errors.Join(err, j.tidy(limited))
		j.close()
		return nil, err
	}
	consumer.Close()
	return j, nil
}

// subscribe creates Options.Subscription if it is missing. It looks for it while j is locked, since another replay or
// purge may have created it before. From now on the subscription keeps the letters of every partition.
func (j *journal) subscribe(ctx context.Context) (pulsar.Consumer, error) {
	names, err := j.t.subscriptions(ctx, j.t.o.Topic)
	if err != nil {
		return nil, err
	}
	j.creates = j.t.o.Admin.URL != "" && !slices.Contains(names, j.t.o.Subscription)
	return j.t.subscribe(ctx, j.t.o.Topic, 1)
}

// isNeeded reports whether there is anything to remember: an unfinished run, or a batch that is only partly done.
func (s *state) isNeeded() bool { return s.run != nil || len(s.done) > 0 }

// enqueue adds a record to the state. The next append or flush writes the record to the journal. So a call that is
// refused before that does not change the journal.
func (j *journal) enqueue(r record) {
	j.apply(r)
	p := &j.pending
	p.Over, p.Run = cmp.Or(p.Over, r.Over), cmp.Or(r.Run, p.Run)
	for topic, n := range r.Spread {
		put(&p.Spread, topic, n)
	}
	for partition, position := range r.Tails {
		put(&p.Tails, partition, position)
	}
	for partition, more := range r.Stay {
		put(&p.Stay, partition, append(p.Stay[partition], more...))
	}
}

// isPending reports whether a record waits to be written.
func (j *journal) isPending() bool {
	return j.pending.Over != "" || j.pending.Run != nil ||
		len(j.pending.Spread)+len(j.pending.Tails)+len(j.pending.Stay) > 0
}

// flush writes the pending record, and returns once it is stored.
func (j *journal) flush(ctx context.Context) error {
	if !j.isPending() {
		return nil
	}
	if err := j.write(ctx, j.pending); err != nil {
		return err
	}
	j.pending, j.remembers = record{}, j.isNeeded()
	return nil
}

// append writes the pending record and then r, and returns once they are stored. It may write a record again that the
// broker did not confirm.
func (j *journal) append(ctx context.Context, r record) error {
	if err := j.flush(ctx); err != nil {
		return err
	}
	if err := j.write(ctx, r); err != nil {
		return err
	}
	j.apply(r)
	j.remembers = j.isNeeded()
	return nil
}

func (j *journal) write(ctx context.Context, r record) error {
	ctx, cancel := context.WithTimeout(ctx, ackPatience)
	defer cancel()
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := j.producer.Send(ctx, &pulsar.ProducerMessage{Payload: data}); err != nil {
		return fmt.Errorf("deadletter: writing to %s: %w", j.topic, err)
	}
	return nil
}

// tidy removes the journal if its records have no unfinished run and no batch that is only partly done.
func (j *journal) tidy(ctx context.Context) error {
	if err := j.forget(ctx); err != nil || j.remembers || j.removed {
		return err
	}
	return j.remove(ctx)
}

// forget removes from the journal the batches that are acknowledged according to the admin API. The journal still has
// such a batch if a process was killed before it noted the acknowledgement, or if another consumer acknowledged the
// batch. Without an admin API, or while a run is unfinished, forget does nothing.
func (j *journal) forget(ctx context.Context) error {
	if len(j.done) == 0 || j.run != nil || j.removed || j.t.o.Admin.URL == "" {
		return nil
	}
	partitions, err := j.t.partitions(ctx, j.t.o.Topic)
	if err != nil {
		return err
	}
	gone := map[string][]byte{}
	for i, partition := range partitions {
		acknowledged, err := j.t.acknowledged(ctx, partition, j.t.o.Subscription)
		if err != nil {
			return err
		}
		for name := range j.done {
			if of, p := parseEntryName(name); of == i && acknowledged.includes(p) {
				gone[name] = nil
			}
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return j.append(ctx, record{Done: gone})
}

// remove clears the journal and removes its subscription.
func (j *journal) remove(ctx context.Context) error {
	j.pending = record{}
	if err := j.append(ctx, record{Clear: true}); err != nil {
		return err
	}
	unsubscribe := func() (struct{}, error) { return struct{}{}, j.lock.Unsubscribe() }
	if _, err := upstream.Within(ctx, unsubscribe, nil); err != nil {
		return fmt.Errorf("deadletter: removing the subscription of %s: %w", j.topic, err)
	}
	j.removed = true
	return nil
}

func (j *journal) close() {
	if j.producer != nil {
		j.producer.Close()
	}
	j.lock.Close()
	if base := topicname.Base(j.topic); j.removed && base != j.topic && j.t.o.Admin.URL != "" {
		// The broker deletes the unused partitions by itself, but not the partitioned topic. It refuses this call if
		// the topic is in use again.
		ctx, cancel := undoContext(context.Background())
		defer cancel()
		_ = admin.API(j.t.o.Admin).Call(ctx, http.MethodDelete, admin.Topic(base)+"/partitions", nil, nil)
	}
}

// partitionName returns the key of a partition in the journal.
func partitionName(partition int) string { return strconv.Itoa(partition) }
