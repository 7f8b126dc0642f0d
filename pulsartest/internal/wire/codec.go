// Package wire is Pulsar's binary protocol as the test broker speaks it: frames, a registry of commands, and the
// metadata of a message.
//
// Each message lists its fields once, in its Fields method. A Codec encodes, decodes and describes the message by this
// list. Tests compare the descriptions with the descriptors of the Go client.
package wire

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Message lists its fields to a Codec.
type Message interface{ Fields(c *Codec) }

// Rule is how often a field may occur.
type Rule = protoreflect.Cardinality

// The rules.
const (
	Optional = protoreflect.Optional
	Required = protoreflect.Required
	Repeated = protoreflect.Repeated
)

type mode int

const (
	encoding mode = iota
	decoding
	resetting
	describing
)

// Field is one field as its message describes it.
type Field struct {
	Num  protowire.Number
	Kind protoreflect.Kind
	Rule Rule
	Def  uint64  // default of a number or bool
	Sub  Message // of a message field
}

// Codec is one pass over the fields of a message.
//
// Encoding always writes required fields, and writes optional fields if they differ from their default. Decoding makes
// one pass for each field on the wire, and reads the field whose number is num.
type Codec struct {
	mode mode
	out  []byte // encoding

	num   protowire.Number // decoding: the current field
	typ   protowire.Type
	in    []byte // from the field's value on
	taken int    // how many bytes of in are the value; 0 if the message has no such field
	err   error

	seen []Field // describing
}

var errTruncated = errors.New("truncated protobuf message")

func marshal(out []byte, m Message) []byte {
	c := Codec{mode: encoding, out: out}
	m.Fields(&c)
	return c.out
}

func unmarshal(b []byte, m Message) error {
	c := Codec{mode: resetting}
	m.Fields(&c)
	c.mode = decoding
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errTruncated
		}
		b = b[n:]
		c.num, c.typ, c.in, c.taken = num, typ, b, 0
		m.Fields(&c)
		if c.err != nil {
			return c.err
		}
		if c.taken == 0 { // an unknown field
			c.taken = protowire.ConsumeFieldValue(num, typ, b)
			if c.taken < 0 {
				return errTruncated
			}
		}
		b = b[c.taken:]
	}
	return nil
}

// Describe lists the fields of m.
func Describe(m Message) []Field {
	c := Codec{mode: describing}
	m.Fields(&c)
	return c.seen
}

// Decoding reports whether this pass decodes. If so, Fields may use the values that the pass has read.
func (c *Codec) Decoding() bool { return c.mode == decoding }

// here reports whether the field on the wire is num. It sets err if this field has another wire type than typ.
func (c *Codec) here(num protowire.Number, typ protowire.Type) bool {
	if c.num != num || c.err != nil {
		return false
	}
	if c.typ != typ {
		c.err = fmt.Errorf("field %d has wire type %d, not %d", num, c.typ, typ)
		return false
	}
	return true
}

func (c *Codec) take(n int) bool {
	if n < 0 {
		c.err = errTruncated
		return false
	}
	c.taken = n
	return true
}

// number handles every kind of field that is a varint. It reports whether it has set v.
func (c *Codec) number(num protowire.Number, kind protoreflect.Kind, r Rule, def uint64, v *uint64) bool {
	switch c.mode {
	case encoding:
		if r == Required || *v != def {
			c.out = protowire.AppendTag(c.out, num, protowire.VarintType)
			c.out = protowire.AppendVarint(c.out, *v)
		}
	case decoding:
		if c.here(num, protowire.VarintType) {
			x, n := protowire.ConsumeVarint(c.in)
			*v = x
			return c.take(n)
		}
	case resetting:
		*v = def
		return true
	case describing:
		c.seen = append(c.seen, Field{Num: num, Kind: kind, Rule: r, Def: def})
	}
	return false
}

// Uint64 handles a field with a number; def is its default.
func (c *Codec) Uint64(num protowire.Number, r Rule, def uint64, p *uint64) {
	c.number(num, protoreflect.Uint64Kind, r, def, p)
}

// Int64 is Uint64 for another type.
func (c *Codec) Int64(num protowire.Number, r Rule, def int64, p *int64) {
	if v := uint64(*p); c.number(num, protoreflect.Int64Kind, r, uint64(def), &v) {
		*p = int64(v)
	}
}

// Uint32 is Uint64 for another type.
func (c *Codec) Uint32(num protowire.Number, r Rule, def uint32, p *uint32) {
	if v := uint64(*p); c.number(num, protoreflect.Uint32Kind, r, uint64(def), &v) {
		*p = uint32(v)
	}
}

// Int32 is Uint64 for another type.
func (c *Codec) Int32(num protowire.Number, r Rule, def int32, p *int32) {
	if v := uint64(int64(*p)); c.number(num, protoreflect.Int32Kind, r, uint64(int64(def)), &v) {
		*p = int32(v)
	}
}

// Bool is Uint64 for another type.
func (c *Codec) Bool(num protowire.Number, r Rule, def bool, p *bool) {
	v := protowire.EncodeBool(*p)
	if c.number(num, protoreflect.BoolKind, r, protowire.EncodeBool(def), &v) {
		*p = v != 0
	}
}

// Enum handles a field with an enumeration; its default is 0.
func Enum[T ~int32](c *Codec, num protowire.Number, r Rule, p *T) {
	if v := uint64(int64(*p)); c.number(num, protoreflect.EnumKind, r, 0, &v) {
		*p = T(v)
	}
}

// String handles a field with a string.
func (c *Codec) String(num protowire.Number, r Rule, p *string) {
	switch c.mode {
	case encoding:
		if r == Required || *p != "" {
			c.out = protowire.AppendTag(c.out, num, protowire.BytesType)
			c.out = protowire.AppendString(c.out, *p)
		}
	case decoding:
		if c.here(num, protowire.BytesType) {
			b, n := protowire.ConsumeBytes(c.in)
			if c.take(n) {
				*p = string(b)
			}
		}
	case resetting:
		*p = ""
	case describing:
		c.seen = append(c.seen, Field{Num: num, Kind: protoreflect.StringKind, Rule: r})
	}
}

// Bytes handles a field with bytes. It distinguishes an empty field (not nil) from an absent one (nil).
func (c *Codec) Bytes(num protowire.Number, r Rule, p *[]byte) {
	switch c.mode {
	case encoding:
		if r == Required || *p != nil {
			c.out = protowire.AppendTag(c.out, num, protowire.BytesType)
			c.out = protowire.AppendBytes(c.out, *p)
		}
	case decoding:
		if c.here(num, protowire.BytesType) {
			b, n := protowire.ConsumeBytes(c.in)
			if c.take(n) {
				*p = append([]byte{}, b...)
			}
		}
	case resetting:
		*p = nil
	case describing:
		c.seen = append(c.seen, Field{Num: num, Kind: protoreflect.BytesKind, Rule: r})
	}
}

// Strings handles a repeated field with strings.
func (c *Codec) Strings(num protowire.Number, p *[]string) {
	switch c.mode {
	case encoding:
		for _, s := range *p {
			c.out = protowire.AppendTag(c.out, num, protowire.BytesType)
			c.out = protowire.AppendString(c.out, s)
		}
	case decoding:
		if c.here(num, protowire.BytesType) {
			b, n := protowire.ConsumeBytes(c.in)
			if c.take(n) {
				*p = append(*p, string(b))
			}
		}
	case resetting:
		*p = nil
	case describing:
		c.seen = append(c.seen, Field{Num: num, Kind: protoreflect.StringKind, Rule: Repeated})
	}
}

// Int64s handles a repeated field with numbers. It encodes one field per value, as proto2 does, and reads packed fields
// too.
func (c *Codec) Int64s(num protowire.Number, p *[]int64) {
	switch c.mode {
	case encoding:
		for _, v := range *p {
			c.out = protowire.AppendTag(c.out, num, protowire.VarintType)
			c.out = protowire.AppendVarint(c.out, uint64(v))
		}
	case decoding:
		if c.num != num || c.err != nil {
			return
		}
		if c.typ == protowire.BytesType {
			b, n := protowire.ConsumeBytes(c.in)
			if !c.take(n) {
				return
			}
			for len(b) > 0 {
				v, n := protowire.ConsumeVarint(b)
				if n < 0 {
					c.err = errTruncated
					return
				}
				*p = append(*p, int64(v))
				b = b[n:]
			}
			return
		}
		if c.here(num, protowire.VarintType) {
			v, n := protowire.ConsumeVarint(c.in)
			if c.take(n) {
				*p = append(*p, int64(v))
			}
		}
	case resetting:
		*p = nil
	case describing:
		c.seen = append(c.seen, Field{Num: num, Kind: protoreflect.Int64Kind, Rule: Repeated})
	}
}
