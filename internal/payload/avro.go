package payload

import (
	"encoding/json"

	"github.com/hamba/avro/v2"
)

// Limits for hostile payloads and schemas, which any producer may publish and register. A few bytes can encode any
// number of values that take no bytes, such as null, and a schema of one line can nest to any depth.
const (
	maxValues = 1 << 18
	maxDepth  = 500
	maxScale  = 1000 // of a decimal
)

// avroReader reads a value and checks the limits; avro.Unmarshal has none. It returns a value of a union without its
// type.
type avroReader struct {
	*avro.Reader
	size   int // of the payload
	values int
}

// decodeAvro returns a value as JSON. NaN is an error, since JSON does not have it.
func decodeAvro(definition string, payload []byte) (json.RawMessage, error) {
	schema, err := parseAvro(definition)
	if err != nil {
		return nil, err
	}
	r := avroReader{Reader: avro.NewReader(nil, 0).Reset(payload), size: len(payload)}
	value := r.value(schema, 0)
	if r.Error != nil {
		return nil, r.Error
	}
	return json.Marshal(value)
}

// parseAvro parses a schema without avro's cache, which every schema of the process would share: a name could mean
// another schema's type.
func parseAvro(definition string) (avro.Schema, error) {
	return avro.ParseWithCache(definition, "", &avro.SchemaCache{})
}

func (r *avroReader) value(schema avro.Schema, depth int) any {
	r.values++
	if r.values > maxValues || depth > maxDepth {
		r.ReportError("value", "too many values, or too deep")
	}
	if r.Error != nil {
		return nil
	}
	switch s := schema.(type) {
	case *avro.NullSchema:
		return nil
	case *avro.RefSchema:
		return r.value(s.Schema(), depth+1)
	case *avro.RecordSchema:
		record := map[string]any{}
		for _, f := range s.Fields() {
			record[f.Name()] = r.value(f.Type(), depth+1)
		}
		return record
	case *avro.ArraySchema:
		array := []any{}
		r.blocks(func() { array = append(array, r.value(s.Items(), depth+1)) })
		return array
	case *avro.MapSchema:
		all := map[string]any{}
		r.blocks(func() {
			name := r.ReadString()
			all[name] = r.value(s.Values(), depth+1)
		})
		return all
	case *avro.UnionSchema:
		i := int(r.ReadInt())
		if i < 0 || i >= len(s.Types()) {
			r.ReportError("union", "no such type")
			return nil
		}
		return r.value(s.Types()[i], depth+1)
	case *avro.FixedSchema:
		if s.Size() > r.size {
			r.ReportError("fixed", "longer than the payload")
			return nil
		}
	}
	if s, ok := schema.(avro.LogicalTypeSchema); ok {
		if d, ok := s.Logical().(*avro.DecimalLogicalSchema); ok && d.Scale() > maxScale {
			r.ReportError("decimal", "scale is too large")
			return nil
		}
	}
	var value any
	r.ReadVal(schema, &value)
	return value
}

// blocks reads the blocks of an array or a map; the last block is empty.
func (r *avroReader) blocks(each func()) {
	for {
		n, _ := r.ReadBlockHeader()
		if n == 0 || r.Error != nil {
			return
		}
		for ; n > 0 && r.Error == nil; n-- {
			each()
		}
	}
}
