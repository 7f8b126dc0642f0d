package wire

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// appendMessage writes m after its length. Most messages are shorter than 128 bytes, so it reserves one byte for the
// length.
func (c *Codec) appendMessage(num protowire.Number, m Message) {
	c.out = protowire.AppendTag(c.out, num, protowire.BytesType)
	start := len(c.out)
	c.out = append(c.out, 0)
	m.Fields(c)
	size := len(c.out) - start - 1
	if size < 0x80 {
		c.out[start] = byte(size)
		return
	}
	extra := protowire.SizeVarint(uint64(size)) - 1
	c.out = append(c.out, make([]byte, extra)...)
	copy(c.out[start+1+extra:], c.out[start+1:start+1+size])
	protowire.AppendVarint(c.out[:start], uint64(size))
}

func (c *Codec) takeMessage(num protowire.Number, m Message) bool {
	if !c.here(num, protowire.BytesType) {
		return false
	}
	b, n := protowire.ConsumeBytes(c.in)
	if !c.take(n) {
		return false
	}
	if err := unmarshal(b, m); err != nil {
		c.err = err
		return false
	}
	return true
}

// One handles a field with a message. nil means that the field is absent.
func One[T any, M interface {
	*T
	Message
}](c *Codec, num protowire.Number, r Rule, p *M) {
	switch c.mode {
	case encoding:
		if *p != nil {
			c.appendMessage(num, *p)
		}
	case decoding:
		if c.num == num {
			if m := M(new(T)); c.takeMessage(num, m) {
				*p = m
			}
		}
	case resetting:
		*p = nil
	case describing:
		c.seen = append(c.seen, Field{Num: num, Kind: protoreflect.MessageKind, Rule: r, Sub: M(new(T))})
	}
}

// Many handles a repeated field with messages.
func Many[T any, M interface {
	*T
	Message
}](c *Codec, num protowire.Number, p *[]T) {
	switch c.mode {
	case encoding:
		for i := range *p {
			c.appendMessage(num, M(&(*p)[i]))
		}
	case decoding:
		if c.num == num {
			if m := M(new(T)); c.takeMessage(num, m) {
				*p = append(*p, *m)
			}
		}
	case resetting:
		*p = nil
	case describing:
		c.seen = append(c.seen, Field{Num: num, Kind: protoreflect.MessageKind, Rule: Repeated, Sub: M(new(T))})
	}
}
