package deadletter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// The journal is a topic beside the dead letter topic. It has what the subscription's cursor cannot remember: the replay that is
// under way, and which letters of a batch are done while others of it are left. It is a log; a record never contradicts an earlier
// one, so a crash between two of them does no harm. When there is nothing to remember its subscription goes, and the broker
// deletes the topic.

// run is a replay from its start to its end, over any number of processes.
type run struct {
	ID      string              `json:"id"`
	Started time.Time           `json:"started"`
	Options json.RawMessage     `json:"options"` // those that decide what becomes of a letter
	Ends    map[string]position `json:"ends"`    // of the partitions: nothing after these belongs to it

	// Tops are where the partitions ended when the run began, if that is elsewhere: it replays a limited number of
	// letters.
	Tops map[string]position `json:"tops,omitempty"`
}

// record is one entry of the journal.
type record struct {
	Run    *run                `json:"run,omitempty"`    // begins, or goes on with a later end
	Over   string              `json:"over,omitempty"`   // the run that is finished, or given up
	Spread map[string]int      `json:"spread,omitempty"` // over how many partitions of a topic the run publishes
	Stay   map[string][]stay   `json:"stay,omitempty"`   // by partition: letters that are left, and stay so in this run
	Tails  map[string]position `json:"tails,omitempty"`  // by partition: the run's canary and its copies come after these
	Sent   int                 `json:"sent,omitempty"`   // letters of the canary
	Sound  bool                `json:"sound,omitempty"`  // the canary was
	Dead   bool                `json:"dead,omitempty"`   // the canary was: the run sends another
	Done   map[string][]byte   `json:"done,omitempty"`   // bits of batches; none for a batch that is acknowledged
	Clear  bool                `json:"clear,omitempty"`  // nothing before counts
}

// state is what the records add up to.
type state struct {
	run    *run
	spread map[string]int
	stay   map[string][]stay
	tails  map[string]position
	sent   int
	sound  bool
	done   map[string][]byte
}

func (s *state) apply(r record) {
	if r.Clear {
		*s = state{}
	}
	if r.Over != "" && s.run != nil && s.run.ID == r.Over {
		*s = state{done: s.done}
	}
	if r.Run != nil {
		s.run = r.Run
	}
	if r.Dead {
		s.tails, s.sent = nil, 0
	}
	for partition, p := range r.Tails {
		put(&s.tails, partition, p)
	}
	s.sent = max(s.sent, r.Sent)
	s.sound = s.sound || r.Sound
	for topic, n := range r.Spread {
		put(&s.spread, topic, n)
	}
	for partition, more := range r.Stay {
		all := s.stay[partition]
		for _, x := range more {
			all = slices.Insert(all, after(all, x.From), x)
		}
		put(&s.stay, partition, all)
	}
	for entry, bits := range r.Done {
		if len(bits) == 0 {
			delete(s.done, entry)
			continue
		}
		put(&s.done, entry, merge(bits, s.done[entry]))
	}
}

func put[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = value
}

// stay is letters that come one after the other and were left when the run came by.
type stay struct {
	From position `json:"from"`
	To   position `json:"to"`
	Why  string   `json:"why"`
}

// after is the first of all that begins after a position.
func after(all []stay, p position) int {
	return sort.Search(len(all), func(i int) bool { return p.before(all[i].From) })
}

// stays is why a letter was left when the run came by, or "" if it was not.
func (s *state) stays(l *Letter) string {
	all := s.stay[partitionName(l.partition)]
	if i := after(all, l.pos); i > 0 && !all[i-1].To.before(l.pos) {
		return all[i-1].Why
	}
	return ""
}

// has reports whether l is done though its batch is not acknowledged.
func (s *state) has(l *Letter) bool {
	return bit(s.done[entryName(l.partition, l.pos)], int(l.pos.Index))
}

func entryName(partition int, p position) string {
	return fmt.Sprintf("%d:%d:%d", partition, p.Ledger, p.Entry)
}

func bit(bits []byte, i int) bool { return i/8 < len(bits) && bits[i/8]&(1<<(i%8)) != 0 }

func setBit(bits []byte, i int) []byte {
	for len(bits) <= i/8 {
		bits = append(bits, 0)
	}
	bits[i/8] |= 1 << (i % 8)
	return bits
}

func merge(a, b []byte) []byte {
	all := append([]byte{}, a...)
	for i := range b {
		if i < len(all) {
			all[i] |= b[i]
		} else {
			all = append(all, b[i])
		}
	}
	return all
}

// journal is open while a replay or a purge is under way. Its consumer receives nothing: its subscription keeps the records, and
// being the only consumer of it is the lock.
type journal struct {
	state
	pending   record // counts in state, and is written before the next record
	remembers bool   // what is written has a run, or batches that are done in part
	removed   bool

	t        *Topic
	topic    string // with its partition
	lock     pulsar.Consumer
	producer pulsar.Producer
}

func (t *Topic) journalTopic() string { return t.o.Topic + "-" + t.o.Subscription }

// readJournal reads the journal without opening it. There may be none, which only an admin API can tell.
func (t *Topic) readJournal(ctx context.Context) (*state, error) {
	s := &state{}
	if names, err := t.subscriptions(ctx, t.journalTopic()); errors.Is(err, ErrNoTopic) || err == nil && len(names) == 0 {
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

// firstPartition is the topic, or its first partition if it has any. The broker may create it.
func (t *Topic) firstPartition(ctx context.Context, topic string) (string, error) {
	partitions, err := within(ctx, func() ([]string, error) { return t.client.TopicPartitions(topic) }, nil)
	if err != nil || len(partitions) == 0 {
		return topic, err
	}
	return partitions[0], nil
}

// makeJournal creates the journal, if it is missing, and returns the topic that has its records. Only the admin API
// creates it unpartitioned whatever the broker's policy is; where it refuses, the broker creates the topic on use,
// perhaps with partitions, or not.
func (t *Topic) makeJournal(ctx context.Context) (topic string, err error) {
	topic = t.journalTopic()
	if _, missing := t.subscriptions(ctx, topic); errors.Is(missing, ErrNoTopic) {
		err = admin.API(t.o.Admin).Call(ctx, http.MethodPut, admin.Topic(topic), nil, nil)
		if admin.HasStatus(err, http.StatusConflict) { // another replay was faster
			err = nil
		}
	}
	first, failed := t.firstPartition(ctx, topic)
	if failed != nil {
		return topic, fmt.Errorf("deadletter: %s, which keeps where a replay is, cannot be created: %w", topic, errors.Join(failed, err))
	}
	return first, nil
}

func (t *Topic) loadJournal(ctx context.Context, topic string, s *state) error {
	tail, err := t.tail(ctx, topic, pulsar.EarliestMessageID(), queueSize)
	if err != nil {
		return err
	}
	defer tail.reader.Close()
	return tail.drain(ctx, func(msg pulsar.Message) error {
		_, letter := msg.Properties()[PropertyReplayRun] // that somebody replayed to here
		var r record
		if err := json.Unmarshal(msg.Payload(), &r); err == nil && !letter {
			s.apply(r)
		}
		return nil
	})
}

// openJournal keeps others out until the journal is closed.
func (t *Topic) openJournal(ctx context.Context) (*journal, error) {
	topic, err := t.makeJournal(ctx)
	if err != nil {
		return nil, err
	}
	lock, err := insist(ctx, lockPatience, func() (pulsar.Consumer, error) {
		return t.client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: t.o.Subscription, Type: pulsar.Exclusive,
			SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest, ReceiverQueueSize: 1})
	}, pulsar.Consumer.Close)
	if err != nil {
		if busy(err) {
			return nil, fmt.Errorf("%w: %s", ErrBusy, t.o.Topic)
		}
		return nil, fmt.Errorf("deadletter: subscribing to %s, which keeps where a replay is: %w", topic, err)
	}
	j := &journal{t: t, topic: topic, lock: lock}
	j.producer, err = within(ctx, func() (pulsar.Producer, error) {
		return t.client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	}, pulsar.Producer.Close)
	if err == nil {
		err = t.loadJournal(ctx, topic, &j.state)
	} else {
		j.producer = nil // upstream's is not nil with an error
	}
	if err != nil {
		j.close()
		return nil, fmt.Errorf("deadletter: opening %s: %w", topic, err)
	}
	j.remembers = j.isNeeded()
	// The subscription keeps the letters of every partition from now on.
	consumer, err := t.subscribe(ctx, t.o.Topic, 1)
	if err != nil {
		limited, cancel := unhurried(ctx)
		defer cancel()
		err = errors.Join(err, j.tidy(limited))
		j.close()
		return nil, err
	}
	consumer.Close()
	return j, nil
}

// unhurried returns a context for what is to be undone, also after ctx is done.
func unhurried(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), lockPatience)
}

// isNeeded reports whether there is anything to remember: a run that is not over, or a batch that is left in part.
func (s *state) isNeeded() bool { return s.run != nil || len(s.done) > 0 }

// later takes a record that is written before the next one, or by flush. Until then the journal is as it was: a call
// that is refused changes nothing.
func (j *journal) later(r record) {
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
	return j.pending.Over != "" || j.pending.Run != nil || len(j.pending.Spread)+len(j.pending.Tails)+len(j.pending.Stay) > 0
}

// flush returns once everything that waits is stored.
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

// append returns once the record is stored, after those that waited. A record that the broker did not confirm may be
// written again.
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

// tidy forgets everything unless what is written has a run that is not over, or a batch that is left in part.
func (j *journal) tidy(ctx context.Context) error {
	if j.remembers || j.removed {
		return nil
	}
	return j.remove(ctx)
}

// remove forgets everything.
func (j *journal) remove(ctx context.Context) error {
	j.pending = record{}
	if err := j.append(ctx, record{Clear: true}); err != nil {
		return err
	}
	if _, err := within(ctx, func() (struct{}, error) { return struct{}{}, j.lock.Unsubscribe() }, nil); err != nil {
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
		// The broker deletes a topic that nobody uses, but only the partitions of a partitioned one. If it is in use again,
		// this is refused.
		ctx, cancel := unhurried(context.Background())
		defer cancel()
		_ = admin.API(j.t.o.Admin).Call(ctx, http.MethodDelete, admin.Topic(base)+"/partitions", nil, nil)
	}
}

// partitionName is a partition's key in the journal.
func partitionName(partition int) string { return strconv.Itoa(partition) }
