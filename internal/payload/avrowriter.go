package payload

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"time"

	"github.com/hamba/avro/v2"
)

// avroWriter writes a JSON value as Avro. In JSON a value of a union does not name its type.
type avroWriter struct {
	*avro.Writer
	isJSON bool // a JSON schema: fields may be missing, and logical types have any form
	values *int // number of values tried
}

func newWriter() avroWriter {
	return avroWriter{Writer: avro.NewWriter(io.Discard, 512), values: new(int)}
}

// value writes a value. at is its path.
func (w avroWriter) value(schema avro.Schema, v any, at string, depth int) error {
	if *w.values++; *w.values > maxValues || depth > maxDepth {
		return errors.New("the schema has too many values, or is too deep")
	}
	ok := false
	switch s := schema.(type) {
	case *avro.NullSchema:
		ok = v == nil
	case *avro.RefSchema:
		return w.value(s.Schema(), v, at, depth+1)
	case *avro.RecordSchema:
		if record, is := v.(map[string]any); is {
			return w.record(s, record, at, depth)
		}
	case *avro.ArraySchema:
		if array, is := v.([]any); is {
			return w.blocks(len(array), func(i int) error {
				return w.value(s.Items(), array[i], fmt.Sprintf("%s[%d]", at, i), depth+1)
			})
		}
	case *avro.MapSchema:
		if all, is := v.(map[string]any); is {
			names := slices.Sorted(maps.Keys(all))
			return w.blocks(len(names), func(i int) error {
				w.WriteString(names[i])
				return w.value(s.Values(), all[names[i]], at+"."+names[i], depth+1)
			})
		}
	case *avro.UnionSchema:
		return w.union(s, v, at, depth)
	case *avro.EnumSchema:
		text, _ := v.(string)
		i := slices.Index(s.Symbols(), text)
		if ok = i >= 0; ok {
			w.WriteInt(int32(i))
		}
	case *avro.FixedSchema:
		ok = w.fixed(s, v)
	case *avro.PrimitiveSchema:
		ok = w.primitive(s, v)
	}
	if !ok {
		return fmt.Errorf("%s is %s, want %s", field(at), shown(v), kind(schema))
	}
	return nil
}

func field(at string) string {
	if at == "" {
		return "the value"
	}
	return at[1:]
}

func shown(v any) string {
	switch v.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "an array"
	}
	text, _ := json.Marshal(v) // cannot fail: v came from JSON
	if len(text) > 100 {
		return string(text[:100]) + " …"
	}
	return string(text)
}

// kind names a type for people.
func kind(schema avro.Schema) string {
	if s, ok := schema.(avro.LogicalTypeSchema); ok && s.Logical() != nil {
		return string(s.Logical().Type())
	}
	return string(schema.Type())
}

func (w avroWriter) record(s *avro.RecordSchema, record map[string]any, at string, depth int) error {
	known := map[string]bool{}
	for _, f := range s.Fields() {
		known[f.Name()] = true
		v, has := record[f.Name()]
		if !has && w.isJSON && (f.HasDefault() || mayBeNull(f.Type())) {
			continue
		}
		if !has {
			return fmt.Errorf("%s is missing", field(at+"."+f.Name()))
		}
		if err := w.value(f.Type(), v, at+"."+f.Name(), depth+1); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(record)) {
		if !known[name] {
			return fmt.Errorf("%s is not in the schema", field(at+"."+name))
		}
	}
	return nil
}

func mayBeNull(schema avro.Schema) bool {
	union, ok := schema.(*avro.UnionSchema)
	return ok && union.Nullable()
}

func (w avroWriter) blocks(n int, each func(int) error) error {
	if n > 0 {
		w.WriteBlockHeader(int64(n), 0)
	}
	for i := range n {
		if err := each(i); err != nil {
			return err
		}
	}
	w.WriteBlockHeader(0, 0)
	return nil
}

// union writes a value as the type of the union that the value fits. A value that fits two types is an error, except
// with a JSON schema.
func (w avroWriter) union(s *avro.UnionSchema, v any, at string, depth int) error {
	found := -1
	var data []byte
	var reason error
	for i, t := range s.Types() {
		try := avroWriter{newWriter().Writer, w.isJSON, w.values}
		if err := try.value(t, v, at, depth+1); err != nil {
			if t.Type() != avro.Null {
				reason = err
			}
			continue
		}
		if found >= 0 && !w.isJSON {
			return fmt.Errorf("%s fits two types of its union, %s and %s", field(at), kind(s.Types()[found]), kind(t))
		}
		found, data = i, try.Buffer()
	}
	if found < 0 {
		return reason
	}
	w.WriteInt(int32(found))
	_, err := w.Write(data)
	return err
}

// fixed writes a fixed value, which is an array of bytes in JSON.
func (w avroWriter) fixed(s *avro.FixedSchema, v any) bool {
	all, ok := v.([]any)
	if !ok || len(all) != s.Size() || s.Logical() != nil {
		return false
	}
	for _, x := range all {
		n, _ := x.(json.Number)
		b, err := strconv.ParseUint(string(n), 10, 8)
		if err != nil {
			return false
		}
		_, _ = w.Write([]byte{byte(b)}) // into memory
	}
	return true
}

func (w avroWriter) primitive(s *avro.PrimitiveSchema, v any) bool {
	if logical := s.Logical(); logical != nil && !w.isJSON && logical.Type() != avro.UUID {
		value := logicalValue(logical.Type(), v)
		if value != nil {
			w.WriteVal(s, value)
		}
		return value != nil && w.Error == nil
	}
	text, isText := v.(string)
	number, isNumber := v.(json.Number)
	var err error
	switch s.Type() {
	case avro.String:
		w.WriteString(text)
		return isText
	case avro.Bytes:
		data, err := base64.StdEncoding.DecodeString(text)
		w.WriteBytes(data)
		return isText && err == nil
	case avro.Boolean:
		b, ok := v.(bool)
		w.WriteBool(b)
		return ok
	case avro.Int:
		var n int64
		n, err = strconv.ParseInt(string(number), 10, 32)
		w.WriteInt(int32(n))
	case avro.Long:
		var n int64
		n, err = strconv.ParseInt(string(number), 10, 64)
		w.WriteLong(n)
	case avro.Float:
		var f float64
		f, err = strconv.ParseFloat(string(number), 32)
		w.WriteFloat(float32(f))
	case avro.Double:
		var f float64
		f, err = strconv.ParseFloat(string(number), 64)
		w.WriteDouble(f)
	default:
		return false
	}
	return isNumber && err == nil
}

// logicalValue converts a value from the form that avroReader returns. It returns nil for a value in another form.
func logicalValue(of avro.LogicalType, v any) any {
	text, _ := v.(string)
	switch of {
	case avro.Decimal:
		if x, ok := new(big.Rat).SetString(text); ok && text != "" && len(text) < maxScale {
			return x
		}
	case avro.TimeMillis, avro.TimeMicros:
		n, _ := v.(json.Number)
		if d, err := n.Int64(); err == nil {
			return time.Duration(d)
		}
	default:
		if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
			return t
		}
	}
	return nil
}
