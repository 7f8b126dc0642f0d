package deadletter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/upstream"
)

// publisherKey identifies the letters that one producer may publish. Deduplication drops a message that comes after one
// with a higher sequence ID and the same producer name. So the letters of one name must be published in the order of
// their IDs, and if the broker refuses one of them, it must refuse all. Letters of one ledger with one schema version
// meet both conditions.
type publisherKey struct {
	topic   string // with its partition
	from    int    // partition of the letters
	ledger  int64
	schema  string // version
	batched bool   // in batches of one; see inBatches
	chunk   int    // bytes of a chunk, for a letter that is larger than the topic allows; 0 for the default
}

func (k publisherKey) name(run string) string {
	name := fmt.Sprintf("replay-%s-%d-%d-%s-%t", run, k.from, k.ledger, k.schema, k.batched)
	if k.chunk > 0 {
		name += fmt.Sprintf("-%d", k.chunk)
	}
	return name
}

type publisher struct {
	producer pulsar.Producer
	used     bool
}

// publisher returns a producer for l. It first waits until the letters of the previous producer for the same topic are
// confirmed, so that the letters keep their order.
func (r *replay) publisher(ctx context.Context, topic string, l *Letter, schema pulsar.Schema) (*publisher, error) {
	keeper, err := r.t.keeper(topic, l, &r.report)
	if err != nil {
		return nil, err
	}
	n, err := r.spread(ctx, topic)
	if err != nil {
		return nil, err
	}
	most := r.mostBytes(ctx, topic)
	if n > 0 {
		topic = fmt.Sprintf("%s-partition-%d", topic, r.o.Routing.partition(l, topic, n))
	}
	key := publisherKey{topic: topic, from: l.partition, ledger: l.pos.Ledger}
	if schema != nil {
		key.schema = l.Schema
	}
	key.batched = inBatches(l, schema)
	if most > 0 && l.weight()+overhead > most {
		if key.batched || l.Size < 2 {
			return nil, errTooLarge
		}
		key.chunk = (l.Size + 1) / 2 // the broker does not compare chunks with the topic's limit
	}
	if before, ok := r.users[topic]; ok && before != key {
		if err := r.w.settle(ctx, 0); err != nil { // upstream keeps the order only within one producer
			return nil, err
		}
		if before.ledger != key.ledger || before.from != key.from {
			r.closePublishers()
		}
	}
	r.users[topic] = key
	if p := r.publishers[key]; p != nil {
		return p, nil
	}
	o := producerOptions(topic, schema, key.batched)
	o.Name = key.name(r.j.run.ID)
	if key.chunk > 0 {
		// a compressed letter might fit into one chunk
		o.ChunkMaxMessageSize, o.CompressionType = uint(key.chunk), pulsar.NoCompression
	}
	if !publishing.InitialSubscription(&o, keeper) {
		return nil, errors.New("deadletter: with this version of pulsar-client-go a producer cannot create a " +
			"subscription")
	}
	if why := r.refused[topic+key.schema]; why != nil {
		return nil, why
	}
	producer, err := r.t.newProducer(ctx, o, r.o.Encryption)
	if err != nil {
		r.refused[topic+key.schema] = err
		return nil, err
	}
	r.publishers[key] = &publisher{producer: producer}
	return r.publishers[key], nil
}

// overhead is more than the bytes that upstream adds to a letter for names and properties.
const overhead = 1 << 10

var errTooLarge = errors.New(tooLarge)

// refusal returns why a letter stays in the dead letter topic, if err means that its target topic will always refuse
// it. It returns "" if the replay must end: for any other error, and if all letters go to the topic that refuses them.
func (o *ReplayOptions) refusal(err error) string {
	switch {
	case errors.Is(err, errTooLarge):
		return tooLarge
	case strings.Contains(err.Error(), "IncompatibleSchema"):
		return refusedSchema
	case o.Topic != "": // all letters go there
		return ""
	case errors.Is(err, pulsar.ErrTopicTerminated) || strings.Contains(err.Error(), "TopicTerminated"):
		return topicEnded
	case strings.Contains(err.Error(), "AuthorizationError"):
		return topicForbidden
	}
	return ""
}

// mostBytes returns the topic's maxMessageSize; 0 if it has none, or if the admin API does not return it.
func (r *replay) mostBytes(ctx context.Context, topic string) int {
	most, known := r.limits[topic]
	if !known && r.t.o.Admin.URL != "" {
		_ = r.t.o.Admin.call(ctx, admin.Topic(topic)+"/maxMessageSize", &most) // few roles have the right to ask
		r.limits[topic] = most
	}
	return most
}

// inBatches reports whether l is published in a batch of one. Only batches have the version of a schema, and only in
// batches can a payload be empty.
func inBatches(l *Letter, schema pulsar.Schema) bool {
	return l.Size <= publishing.Large && (schema != nil || l.Size == 0 && !l.Null)
}

func producerOptions(topic string, schema pulsar.Schema, batched bool) pulsar.ProducerOptions {
	return pulsar.ProducerOptions{Topic: topic, CompressionType: pulsar.LZ4, Schema: schema,
		SendTimeout:     -1, // otherwise upstream would drop a message and send the next one
		DisableBatching: !batched, EnableChunking: !batched, BatchingMaxMessages: 1,
		BatchingMaxPublishDelay: time.Millisecond}
}

func (t *Topic) newProducer(ctx context.Context, o pulsar.ProducerOptions,
	encrypt *pulsar.ProducerEncryptionInfo) (pulsar.Producer, error) {
	if encrypt != nil {
		encryption := *encrypt // upstream modifies it
		o.Encryption = &encryption
		o.ChunkMaxMessageSize = publishing.SealedChunk
	}
	producer, err := insist(ctx, ackPatience, func() (pulsar.Producer, error) { return t.client.CreateProducer(o) },
		pulsar.Producer.Close)
	if err != nil {
		return nil, fmt.Errorf("deadletter: publishing to %s: %w", o.Topic, err)
	}
	return producer, nil
}

// spread returns how many partitions a topic had when the run first published to it; 0 if it is not partitioned. The
// number stays the same for the whole run, so that neither a key nor a letter that is published again moves to another
// partition.
func (r *replay) spread(ctx context.Context, topic string) (int, error) {
	if n, ok := r.j.spread[topic]; ok {
		return n, nil
	}
	partitions, err := upstream.Within(ctx, func() ([]string, error) { return r.t.client.TopicPartitions(topic) }, nil)
	if err != nil {
		return 0, fmt.Errorf("deadletter: %s: %w", topic, err)
	}
	n := len(partitions)
	if n == 1 && partitions[0] == topic {
		n = 0
	}
	r.j.enqueue(record{Spread: map[string]int{topic: n}})
	return n, nil
}

// small is a weight in bytes. Upstream knows before SendAsync returns whether it can send a letter of at most this
// weight.
const small = 64 << 10

// publish sends l. If upstream cannot send l, publish returns the error before the next letter is sent.
func (r *replay) publish(ctx context.Context, p *publisher, l *Letter, schema pulsar.Schema, done func(error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m := l.message(r.j.run.ID)
	sequence := l.pos.Entry<<20 | int64(l.pos.Index)
	m.SequenceID, m.Schema = &sequence, schema
	r.w.alone = l.weight() > small || r.o.Encryption != nil && !p.used
	p.used = true
	canary, name := r.o.Canary > 0 && !r.j.sound, l.ID
	publishing.SendAsync(ctx, p.producer, m, func(id pulsar.MessageID, err error) {
		if err == nil && id.LedgerID() < 0 {
			r.dropped.Add(1) // by deduplication
		} else if err == nil && canary {
			r.names.Store(fmt.Sprintf("%d:%d", id.LedgerID(), id.EntryID()), name)
		}
		done(err)
	})
	return nil
}

func (r *replay) closePublishers() {
	for key, p := range r.publishers {
		p.producer.Close()
		delete(r.publishers, key)
	}
	clear(r.users)
}
