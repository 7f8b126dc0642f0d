// Package wire is the part of Pulsar's binary protocol that the test broker
// speaks: frames, commands and the metadata of a message.
//
// Each message names its fields once, in its fields method. The same list
// encodes it, decodes it and describes it to the test that compares it with
// the descriptors of the Go client.
package wire

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A message lists its fields to a codec.
type message interface{ fields(c *codec) }

// rule is how often a field may occur.
type rule = protoreflect.Cardinality

const (
	optional = protoreflect.Optional
	required = protoreflect.Required
	repeated = protoreflect.Repeated
)

type mode int

const (
	encoding mode = iota
	decoding
	resetting
	describing
)

// field is one field as its message describes it.
type field struct {
	num  protowire.Number
	kind protoreflect.Kind
	rule rule
	def  uint64  // default of a number or bool
	sub  message // of a message field
}

// codec is one pass over the fields of a message.
//
// Encoding emits required fields always and optional ones when they differ
// from their default. Decoding is called once per field on the wire and
// takes the one whose number is num.
type codec struct {
	mode mode
	out  []byte // encoding

	num   protowire.Number // decoding: the field at hand,
	typ   protowire.Type
	in    []byte // its bytes and what follows
	taken int    // how many belong to it; 0 when no field took it
	err   error

	seen []field // describing
}

var errTruncated = errors.New("truncated protobuf message")

func marshal(out []byte, m message) []byte {
	c := codec{mode: encoding, out: out}
	m.fields(&c)
	return c.out
}

func unmarshal(b []byte, m message) error {
	c := codec{mode: resetting}
	m.fields(&c)
	c.mode = decoding
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errTruncated
		}
		b = b[n:]
		c.num, c.typ, c.in, c.taken = num, typ, b, 0
		m.fields(&c)
		if c.err != nil {
			return c.err
		}
		if c.taken == 0 { // not a field we know
			if c.taken = protowire.ConsumeFieldValue(num, typ, b); c.taken < 0 {
				return errTruncated
			}
		}
		b = b[c.taken:]
	}
	return nil
}

func describe(m message) []field {
	c := codec{mode: describing}
	m.fields(&c)
	return c.seen
}

// here reports whether the field on the wire is num, with wire type typ.
func (c *codec) here(num protowire.Number, typ protowire.Type) bool {
	if c.num != num || c.err != nil {
		return false
	}
	if c.typ != typ {
		c.err = fmt.Errorf("field %d has wire type %d, not %d", num, c.typ, typ)
		return false
	}
	return true
}

func (c *codec) take(n int) bool {
	if n < 0 {
		c.err = errTruncated
		return false
	}
	c.taken = n
	return true
}

// number handles every kind that is a varint; it reports whether v was set.
func (c *codec) number(num protowire.Number, kind protoreflect.Kind, r rule, def uint64, v *uint64) bool {
	switch c.mode {
	case encoding:
		if r == required || *v != def {
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
		c.seen = append(c.seen, field{num: num, kind: kind, rule: r, def: def})
	}
	return false
}

func (c *codec) uint64(num protowire.Number, r rule, def uint64, p *uint64) {
	c.number(num, protoreflect.Uint64Kind, r, def, p)
}

func (c *codec) int64(num protowire.Number, r rule, def int64, p *int64) {
	if v := uint64(*p); c.number(num, protoreflect.Int64Kind, r, uint64(def), &v) {
		*p = int64(v)
	}
}

func (c *codec) uint32(num protowire.Number, r rule, def uint32, p *uint32) {
	if v := uint64(*p); c.number(num, protoreflect.Uint32Kind, r, uint64(def), &v) {
		*p = uint32(v)
	}
}

func (c *codec) int32(num protowire.Number, r rule, def int32, p *int32) {
	if v := uint64(int64(*p)); c.number(num, protoreflect.Int32Kind, r, uint64(int64(def)), &v) {
		*p = int32(v)
	}
}

func (c *codec) bool(num protowire.Number, r rule, def bool, p *bool) {
	v := protowire.EncodeBool(*p)
	if c.number(num, protoreflect.BoolKind, r, protowire.EncodeBool(def), &v) {
		*p = v != 0
	}
}

func enum[T ~int32](c *codec, num protowire.Number, r rule, p *T) {
	if v := uint64(int64(*p)); c.number(num, protoreflect.EnumKind, r, 0, &v) {
		*p = T(v)
	}
}

func (c *codec) string(num protowire.Number, r rule, p *string) {
	switch c.mode {
	case encoding:
		if r == required || *p != "" {
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
		c.seen = append(c.seen, field{num: num, kind: protoreflect.StringKind, rule: r})
	}
}

// bytes tells an empty field (not nil) from an absent one (nil).
func (c *codec) bytes(num protowire.Number, r rule, p *[]byte) {
	switch c.mode {
	case encoding:
		if r == required || *p != nil {
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
		c.seen = append(c.seen, field{num: num, kind: protoreflect.BytesKind, rule: r})
	}
}

func (c *codec) strings(num protowire.Number, p *[]string) {
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
		c.seen = append(c.seen, field{num: num, kind: protoreflect.StringKind, rule: repeated})
	}
}

// int64s encodes one field per value, as proto2 does, and reads packed ones too.
func (c *codec) int64s(num protowire.Number, p *[]int64) {
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
		c.seen = append(c.seen, field{num: num, kind: protoreflect.Int64Kind, rule: repeated})
	}
}
