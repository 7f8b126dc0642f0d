package reconsume

import (
	"encoding/binary"
	"math"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/hamba/avro/v2"
)

// readable reports whether a payload can be published with the consumer's schema. The client does not say which schema it was
// written with, so it is taken for the consumer's if that accounts for every byte; a version that has only its fields in
// another order is not told apart.
func (o *Options) readable(msg pulsar.Message) bool {
	schema, ok := o.Schema.(*pulsar.AvroSchema)
	if !ok || len(msg.SchemaVersion()) == 0 || len(msg.Payload()) == 0 { // a null value has none
		return true
	}
	v := avroValue{data: msg.Payload()}
	v.read(schema.Codec)
	return !v.bad && len(v.data) == 0
}

// avroValue is what is left of a value. The decoder that upstream has allocates and loops without bounds where a value is not
// of its schema.
type avroValue struct {
	data  []byte
	depth int
	bad   bool
}

func (v *avroValue) read(schema avro.Schema) {
	if v.depth++; v.bad || v.depth > 10_000 {
		v.bad = true
		return
	}
	defer func() { v.depth-- }()
	switch s := schema.(type) {
	case *avro.RefSchema:
		v.read(s.Schema())
	case *avro.RecordSchema:
		for _, field := range s.Fields() {
			v.read(field.Type())
		}
	case *avro.EnumSchema:
		v.below(len(s.Symbols()))
	case *avro.UnionSchema:
		if i := v.below(len(s.Types())); !v.bad {
			v.read(s.Types()[i])
		}
	case *avro.ArraySchema:
		v.blocks(func() { v.read(s.Items()) })
	case *avro.MapSchema:
		v.blocks(func() {
			v.skip(v.below(math.MaxInt))
			v.read(s.Values())
		})
	case *avro.FixedSchema:
		v.skip(s.Size())
	default:
		switch schema.Type() {
		case avro.Boolean:
			v.skip(1)
		case avro.Float:
			v.skip(4)
		case avro.Double:
			v.skip(8)
		case avro.Int, avro.Long:
			v.long()
		case avro.Bytes, avro.String:
			v.skip(v.below(math.MaxInt))
		}
	}
}

func (v *avroValue) blocks(item func()) {
	for n := v.long(); n != 0 && !v.bad; n = v.long() {
		if n < 0 { // the size in bytes follows
			n = -n
			v.long()
		}
		if n > int64(len(v.data)) {
			v.bad = true
		}
		for ; n > 0 && !v.bad; n-- {
			item()
		}
	}
}

func (v *avroValue) long() int64 {
	n, size := binary.Varint(v.data)
	v.bad = v.bad || size <= 0
	v.data = v.data[max(size, 0):]
	return n
}

func (v *avroValue) below(limit int) int {
	n := v.long()
	v.bad = v.bad || n < 0 || n >= int64(limit)
	return int(n)
}

func (v *avroValue) skip(n int) {
	if v.bad = v.bad || n > len(v.data); !v.bad {
		v.data = v.data[n:]
	}
}
