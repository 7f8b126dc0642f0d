package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"math/rand"
	"testing"

	_ "github.com/apache/pulsar-client-go/pulsar" // registers the descriptors
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
)

func descriptor(t testing.TB, name string) protoreflect.MessageDescriptor {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("pulsar.proto." + name))
	require.NoError(t, err)
	return d.(protoreflect.MessageDescriptor)
}

// sameFields holds every field of m against the client's descriptor.
func sameFields(t *testing.T, d protoreflect.MessageDescriptor, m message) {
	fields := describe(m)
	for _, f := range fields {
		fd := d.Fields().ByNumber(f.num)
		if fd == nil {
			t.Errorf("%s has no field %d", d.FullName(), f.num)
			continue
		}
		if fd.Kind() != f.kind || fd.Cardinality() != f.rule {
			t.Errorf("%s is %s %s, not %s %s", fd.FullName(), fd.Cardinality(), fd.Kind(), f.rule, f.kind)
		}
		if f.sub != nil {
			sameFields(t, fd.Message(), f.sub)
		}
		if fd.IsPacked() {
			t.Errorf("%s is packed", fd.FullName())
		}
		if f.rule != optional || f.def == Absent && fd.Name() != "partition" && fd.Name() != "batch_index" {
			continue
		}
		switch def := fd.Default(); fd.Kind() {
		case protoreflect.BoolKind:
			require.Equal(t, def.Bool(), f.def != 0, fd.FullName())
		case protoreflect.Int32Kind, protoreflect.Int64Kind:
			require.Equal(t, def.Int(), int64(f.def), fd.FullName())
		case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
			require.Equal(t, def.Uint(), f.def, fd.FullName())
		case protoreflect.EnumKind:
			require.EqualValues(t, def.Enum(), f.def, fd.FullName())
		}
	}
	for i := range d.Fields().Len() { // what the broker must not leave out
		fd := d.Fields().Get(i)
		found := false
		for _, f := range fields {
			found = found || f.num == fd.Number()
		}
		if fd.Cardinality() == required && !found {
			t.Errorf("%s is required", fd.FullName())
		}
	}
}

func TestFieldsMatchTheClientsDescriptors(t *testing.T) {
	base := descriptor(t, "BaseCommand")
	types := base.Fields().ByNumber(1).Enum()
	for typ, c := range commands {
		value := types.Values().ByNumber(protoreflect.EnumNumber(typ))
		require.NotNil(t, value, c.name)
		require.Equal(t, string(value.Name()), c.name)
		require.Equal(t, typ, c.make().Type())
		field := base.Fields().ByNumber(protoreflect.FieldNumber(typ))
		require.NotNil(t, field, c.name)
		sameFields(t, field.Message(), c.make())
	}
	sameFields(t, descriptor(t, "MessageMetadata"), new(Metadata))
	sameFields(t, descriptor(t, "SingleMessageMetadata"), new(BatchMetadata))
}

func TestServerErrorsMatchTheClients(t *testing.T) {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName("pulsar.proto.ServerError")
	require.NoError(t, err)
	values := d.(protoreflect.EnumDescriptor).Values()
	require.Equal(t, int(ProducerFenced)+1, values.Len())
	require.Equal(t, protoreflect.Name("ProducerFenced"), values.ByNumber(protoreflect.EnumNumber(ProducerFenced)).Name())
	require.Equal(t, protoreflect.Name("NotAllowedError"), values.ByNumber(protoreflect.EnumNumber(NotAllowedError)).Name())
}

// Every command, empty and filled, is what the client's own decoder reads.
func TestCommandsSurviveTheClientsCodec(t *testing.T) {
	base := descriptor(t, "BaseCommand")
	rnd := rand.New(rand.NewSource(1))
	for typ, c := range commands {
		for range 20 {
			cmd := c.make()
			random(rnd, cmd)
			encoded := appendCommand(nil, cmd)
			theirs := dynamicpb.NewMessage(base)
			require.NoError(t, proto.Unmarshal(encoded, theirs), typ)
			again, err := proto.MarshalOptions{Deterministic: true}.Marshal(theirs)
			require.NoError(t, err)
			ours, err := decodeCommand(again)
			require.NoError(t, err)
			require.Equal(t, cmd, ours, typ)
		}
	}
}

// random fills m from bytes made up by its description, so that decoding
// applies defaults as it does on the wire.
func random(rnd *rand.Rand, m message) {
	var build func(m message) []byte
	build = func(m message) []byte {
		var b []byte
		for _, f := range describe(m) {
			n := 1
			switch {
			case f.rule == repeated:
				n = rnd.Intn(3)
			case f.rule == optional:
				n = rnd.Intn(2)
			}
			for range n {
				switch f.kind {
				case protoreflect.StringKind, protoreflect.BytesKind:
					b = protowire.AppendTag(b, f.num, protowire.BytesType)
					b = protowire.AppendString(b, string(bytes.Repeat([]byte{'x'}, 1+rnd.Intn(300))))
				case protoreflect.MessageKind:
					b = protowire.AppendTag(b, f.num, protowire.BytesType)
					b = protowire.AppendBytes(b, build(f.sub))
				case protoreflect.BoolKind:
					b = protowire.AppendTag(b, f.num, protowire.VarintType)
					b = protowire.AppendVarint(b, uint64(rnd.Intn(2)))
				case protoreflect.EnumKind:
					b = protowire.AppendTag(b, f.num, protowire.VarintType)
					b = protowire.AppendVarint(b, uint64(rnd.Intn(2)))
				case protoreflect.Int32Kind:
					b = protowire.AppendTag(b, f.num, protowire.VarintType)
					b = protowire.AppendVarint(b, uint64(int64(int32(rnd.Uint32()))))
				case protoreflect.Uint32Kind:
					b = protowire.AppendTag(b, f.num, protowire.VarintType)
					b = protowire.AppendVarint(b, uint64(rnd.Uint32()))
				default:
					b = protowire.AppendTag(b, f.num, protowire.VarintType)
					b = protowire.AppendVarint(b, rnd.Uint64()>>uint(rnd.Intn(64)))
				}
			}
		}
		return b
	}
	if err := unmarshal(build(m), m); err != nil {
		panic(err)
	}
}

func TestRequiredFieldsAreEmittedWhenZero(t *testing.T) {
	theirs := dynamicpb.NewMessage(descriptor(t, "BaseCommand"))
	require.NoError(t, proto.Unmarshal(appendCommand(nil, &Message{ID: MessageID{Partition: -1, BatchIndex: -1}, Epoch: Absent}), theirs))
}

func TestReaderRefusesBadFrames(t *testing.T) {
	ping := AppendFrame(nil, &Ping{}, 0)
	frame := func(total, size uint32, rest string) []byte {
		b := binary.BigEndian.AppendUint32(nil, total)
		b = binary.BigEndian.AppendUint32(b, size)
		return append(b, rest...)
	}
	for name, in := range map[string][]byte{
		"truncated length":  ping[:2],
		"truncated frame":   ping[:len(ping)-1],
		"oversized":         frame(math.MaxUint32, 4, ""),
		"too short":         frame(3, 0, ""),
		"command too long":  frame(10, 100, "123456"),
		"negative size":     frame(10, math.MaxUint32, "123456"),
		"not protobuf":      frame(8, 4, "\xff\xff\xff\xff"),
		"unknown command":   frame(6, 2, "\x08\x63"),
		"no body":           frame(6, 2, "\x08\x12"),
		"wrong wire type":   frame(10, 6, "\x08\x04\x22\x02\x08\x01"),
		"truncated message": frame(9, 5, "\x08\x04\x22\x05\x0a"),
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := NewReader(bytes.NewReader(in), 1000).Read()
			require.Error(t, err)
		})
	}
	cmd, data, err := NewReader(bytes.NewReader(ping), 1000).Read()
	require.NoError(t, err)
	require.Equal(t, &Ping{}, cmd)
	require.Nil(t, data)
}

func TestSplitChecksTheChecksum(t *testing.T) {
	body := append([]byte{0, 0, 0, 2}, "mdpayload"...)
	data := binary.BigEndian.AppendUint16(nil, magic)
	data = binary.BigEndian.AppendUint32(data, crc32.Checksum(body, castagnoli))
	data = append(data, body...)
	metadata, payload, err := Split(data)
	require.NoError(t, err)
	require.Equal(t, "md", string(metadata))
	require.Equal(t, "payload", string(payload))

	data[len(data)-1]++
	_, _, err = Split(data)
	require.True(t, errors.Is(err, ErrChecksum))
	_, _, err = Split([]byte{0, 0, 0, 9, 1})
	require.Error(t, err)
	_, _, err = Split(nil)
	require.Error(t, err)
}

func FuzzReader(f *testing.F) {
	f.Add(AppendFrame(nil, &Ping{}, 0))
	f.Add(AppendFrame(nil, &Subscribe{Topic: "t", Subscription: "s"}, 0))
	f.Fuzz(func(_ *testing.T, in []byte) {
		r := NewReader(bytes.NewReader(in), 1000)
		for {
			_, data, err := r.Read()
			if err != nil {
				return
			}
			if metadata, _, err := Split(data); err == nil {
				_, _ = ParseMetadata(metadata)
			}
		}
	})
}
