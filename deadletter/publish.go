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
)

// publisherKey names the letters that one producer may publish. Deduplication forgets a message that comes after one
// with a higher sequence id of the same producer's name, so a name is for letters that are published in the order of
// their ids, and are all left if one is: those of a ledger, with one version of the schema.
type publisherKey struct {
	topic   string // with its partition
	from    int    // partition of the letters
	ledger  int64
	schema  string // version
	batched bool   // batches of one: only these say which version, and only these can be empty
	chunk   int    // the bytes of a chunk, for a letter that is larger than the topic allows; 0 for the usual
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

// publisher returns a producer for l. The letters of the one before it on the same topic are confirmed by then, so that
// the order stays.
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
	key.batched = inBatches(l, schema) // a message of chunks has the schema, but does not say which version
	if most > 0 && l.weight()+aside > most {
		if key.batched || l.Size < 2 {
			return nil, errTooLarge
		}
		key.chunk = (l.Size + 1) / 2 // the broker does not compare chunks with the topic's limit
	}
	if before, ok := r.users[topic]; ok && before != key {
		if err := r.w.settle(ctx, 0); err != nil { // upstream's order is that of one producer
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
		// which could make one chunk of it
		o.ChunkMaxMessageSize, o.CompressionType = uint(key.chunk), pulsar.NoCompression
	}
	if !publishing.InitialSubscription(&o, keeper) {
		return nil, errors.New("deadletter: this version of pulsar-client-go cannot have a producer create a " +
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

// aside is the weight of a message beside its letter, at most: names and properties that upstream adds.
const aside = 1 << 10

var errTooLarge = errors.New(tooLarge)

// refusal returns why a letter has to stay, if it has no publisher and will not have one unless its topic changes; ""
// if the replay cannot go on.
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

// mostBytes is how large a message the topic's policy allows; 0 if it does not say, or the admin API does not.
func (r *replay) mostBytes(ctx context.Context, topic string) int {
	most, known := r.limits[topic]
	if !known && r.t.o.Admin.URL != "" {
		_ = r.t.o.Admin.call(ctx, admin.Topic(topic)+"/maxMessageSize", &most) // which few may ask for
		r.limits[topic] = most
	}
	return most
}

// inBatches reports whether l is published in batches of one: only these say which version of the schema, and only
// these can be empty.
func inBatches(l *Letter, schema pulsar.Schema) bool {
	return l.Size <= publishing.Large && (schema != nil || l.Size == 0 && !l.Null)
}

func producerOptions(topic string, schema pulsar.Schema, batched bool) pulsar.ProducerOptions {
	return pulsar.ProducerOptions{Topic: topic, CompressionType: pulsar.LZ4, Schema: schema,
		SendTimeout:     -1, // upstream would drop one message and go on to send the next
		DisableBatching: !batched, EnableChunking: !batched, BatchingMaxMessages: 1,
		BatchingMaxPublishDelay: time.Millisecond}
}

func (t *Topic) newProducer(ctx context.Context, o pulsar.ProducerOptions,
	encrypt *pulsar.ProducerEncryptionInfo) (pulsar.Producer, error) {
	if encrypt != nil {
		encryption := *encrypt // upstream writes to it
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

// spread is how many partitions a topic had when the run came to it first, 0 if it is not partitioned. It stays so: a
// key must not move, nor may a letter that is published again.
func (r *replay) spread(ctx context.Context, topic string) (int, error) {
	if n, ok := r.j.spread[topic]; ok {
		return n, nil
	}
	partitions, err := within(ctx, func() ([]string, error) { return r.t.client.TopicPartitions(topic) }, nil)
	if err != nil {
		return 0, fmt.Errorf("deadletter: %s: %w", topic, err)
	}
	n := len(partitions)
	if n == 1 && partitions[0] == topic {
		n = 0
	}
	r.j.later(record{Spread: map[string]int{topic: n}})
	return n, nil
}

// small is the weight up to which upstream finds out whether a message can be sent before SendAsync returns.
const small = 64 << 10

// publish sends l. Whatever upstream cannot send is known before the next letter is sent.
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
