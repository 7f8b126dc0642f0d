package reconsume

import (
	"context"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/hamba/avro/v2"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// schemas holds the schemas that messages were written with.
type schemas struct {
	own    pulsar.Schema   // the consumer's if it is Avro, else nil: other payloads can be read with any version
	closed context.Context // done when the Reconsumer is closed
	mu     sync.Mutex
	found  map[string]*lookup // by topic and version
}

// lookup is the search for a schema at the broker, and its result.
type lookup struct {
	done   chan struct{} // closed when the fields below are set
	schema pulsar.Schema // nil if it is the consumer's
	err    error
}

func newSchemas(closed context.Context, own pulsar.Schema) *schemas {
	if own == nil || own.GetSchemaInfo() == nil || own.GetSchemaInfo().Type != pulsar.AVRO {
		own = nil
	}
	return &schemas{own: own, closed: closed, found: map[string]*lookup{}}
}

// find returns the schema that a message was written with, or nil if it is the consumer's.
func (s *schemas) find(ctx context.Context, msg pulsar.Message) (pulsar.Schema, error) {
	if s.own == nil || len(msg.SchemaVersion()) == 0 {
		return nil, nil
	}
	key := topicname.Base(msg.Topic()) + " " + hex.EncodeToString(msg.SchemaVersion())
	s.mu.Lock()
	l := s.found[key]
	if l == nil {
		l = &lookup{done: make(chan struct{})}
		s.found[key] = l
		go s.ask(key, l, msg)
	}
	s.mu.Unlock()
	select {
	case <-l.done:
		return l.schema, l.err
	case <-s.closed.Done():
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *schemas) ask(key string, l *lookup, msg pulsar.Message) {
	defer close(l.done)
	l.schema, l.err = publishing.SchemaOf(msg)
	if l.err != nil { // the next message asks again
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.found, key)
		return
	}
	if encodeAlike(l.schema.GetSchemaInfo(), s.own.GetSchemaInfo()) {
		l.schema = nil
	}
}

// encodeAlike reports whether a and b encode payloads in the same way. A schema that cannot be parsed as Avro equals no
// other one.
func encodeAlike(a, b *pulsar.SchemaInfo) bool {
	read := func(info *pulsar.SchemaInfo) (fingerprint [32]byte, ok bool) {
		schema, err := avro.ParseBytesWithCache([]byte(info.Schema), "", &avro.SchemaCache{})
		if err != nil || info.Type != pulsar.AVRO {
			return fingerprint, false
		}
		return schema.Fingerprint(), true
	}
	x, ok := read(a)
	y, ok2 := read(b)
	return ok && ok2 && x == y
}

// startWithSchema begins to publish a message with the schema that its payload was written with. Upstream writes the
// version of a schema only on batches, and puts no delayed message into a batch. So a retry with another version than
// the consumer's has no delay at the broker: the consumer that gets the retry holds it back. A message that cannot be
// published with its version is published without one, and has PropertyOriginSchemaVersion.
//
// KNOWN WINDOW: a message is also published without its version if the broker takes messages at that moment, but does
// not return the schema.
func (r *Reconsumer) startWithSchema(ctx context.Context, start starter, from pulsar.Message,
	msg *pulsar.ProducerMessage) (answer func() error) {
	if r.o.Schema == nil && len(from.SchemaVersion()) > 0 { // nothing is published with a schema
		msg.Properties[PropertyOriginSchemaVersion] = hex.EncodeToString(from.SchemaVersion())
	}
	schema, err := r.schemas.find(ctx, from)
	if err == nil && schema == nil || len(msg.Payload) == 0 {
		return start(ctx, msg)
	}
	bare := func() func() error {
		msg.Properties[PropertyOriginSchemaVersion] = hex.EncodeToString(from.SchemaVersion())
		msg.Schema = nil
		if msg.DeliverAfter == 0 {
			msg.DeliverAt = atOnce // a batch would have the consumer's version
		}
		return start(ctx, msg)
	}
	switch {
	case errors.Is(err, ErrClosed):
		return failed(err)
	case ctx.Err() != nil:
		return failed(ctx.Err())
	case err != nil || bytesOf(msg) > publishing.Large:
		return bare()
	}
	delay := msg.DeliverAfter
	msg.Schema, msg.DeliverAfter, msg.DeliverAt = schema, 0, time.Time{}
	answered := start(ctx, msg)
	return func() error {
		err := answered()
		if errors.Is(err, pulsar.ErrSchema) || isTooLarge(err) || isRefused(err) { // refused with this schema
			msg.DeliverAfter = delay
			err = bare()()
		}
		return err
	}
}

// starter begins to publish a message.
type starter func(context.Context, *pulsar.ProducerMessage) (answer func() error)
