package pulsartest

import (
	"bytes"
	"math/rand"
	"reflect"
	"testing"

	_ "github.com/apache/pulsar-client-go/pulsar" // registers the descriptors
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

func descriptor(t testing.TB, name string) protoreflect.MessageDescriptor {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("pulsar.proto." + name))
	require.NoError(t, err)
	return d.(protoreflect.MessageDescriptor)
}

// sameFields compares every field of m with the client's descriptor.
func sameFields(t *testing.T, d protoreflect.MessageDescriptor, m wire.Message) {
	fields := wire.Describe(m)
	for _, f := range fields {
		fd := d.Fields().ByNumber(f.Num)
		if fd == nil {
			t.Errorf("%s has no field %d", d.FullName(), f.Num)
			continue
		}
		if fd.Kind() != f.Kind || fd.Cardinality() != f.Rule {
			t.Errorf("%s is %s %s, not %s %s", fd.FullName(), fd.Cardinality(), fd.Kind(), f.Rule, f.Kind)
		}
		if f.Sub != nil {
			sameFields(t, fd.Message(), f.Sub)
		}
		if fd.IsPacked() {
			t.Errorf("%s is packed", fd.FullName())
		}
		if f.Rule != wire.Optional || f.Def == wire.Absent && fd.Name() != "partition" && fd.Name() != "batch_index" {
			continue
		}
		switch def := fd.Default(); fd.Kind() {
		case protoreflect.BoolKind:
			require.Equal(t, def.Bool(), f.Def != 0, fd.FullName())
		case protoreflect.Int32Kind, protoreflect.Int64Kind:
			require.Equal(t, def.Int(), int64(f.Def), fd.FullName())
		case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
			require.Equal(t, def.Uint(), f.Def, fd.FullName())
		case protoreflect.EnumKind:
			require.EqualValues(t, def.Enum(), f.Def, fd.FullName())
		}
	}
	for i := range d.Fields().Len() { // fields that the broker must not leave out
		fd := d.Fields().Get(i)
		found := false
		for _, f := range fields {
			found = found || f.Num == fd.Number()
		}
		if fd.Cardinality() == wire.Required && !found {
			t.Errorf("%s is required", fd.FullName())
		}
	}
}

func TestFieldsMatchTheClientsDescriptors(t *testing.T) {
	base := descriptor(t, "BaseCommand")
	types := base.Fields().ByNumber(1).Enum()
	for _, cmd := range wire.Commands() {
		typ := cmd.Type()
		value := types.Values().ByNumber(protoreflect.EnumNumber(typ))
		require.NotNil(t, value, typ)
		require.Equal(t, string(value.Name()), typ.String())
		field := base.Fields().ByNumber(protoreflect.FieldNumber(typ))
		require.NotNil(t, field, typ)
		sameFields(t, field.Message(), cmd)
	}
	sameFields(t, descriptor(t, "MessageMetadata"), new(wire.Metadata))
	sameFields(t, descriptor(t, "SingleMessageMetadata"), new(wire.BatchMetadata))
}

func TestServerErrorsMatchTheClients(t *testing.T) {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName("pulsar.proto.ServerError")
	require.NoError(t, err)
	values := d.(protoreflect.EnumDescriptor).Values()
	require.Equal(t, int(wire.ProducerFenced)+1, values.Len())
	for i := range values.Len() {
		code, ok := wire.ParseServerError(string(values.Get(i).Name()))
		require.True(t, ok, values.Get(i).Name())
		require.Equal(t, values.Get(i).Number(), protoreflect.EnumNumber(code))
	}
	for name, want := range map[string]wire.ServerError{"ConsumerBusy": wire.ConsumerBusy,
		"NotAllowedError": wire.NotAllowedError, "ProducerFenced": wire.ProducerFenced} {
		code, _ := wire.ParseServerError(name)
		require.Equal(t, want, code)
	}
}

// The client's own codec decodes and encodes every command, with random fields, without changing a field.
func TestCommandsSurviveTheClientsCodec(t *testing.T) {
	base := descriptor(t, "BaseCommand")
	rnd := rand.New(rand.NewSource(1))
	for range 20 {
		for _, cmd := range wire.Commands() {
			typ := cmd.Type()
			fill(t, rnd, cmd)
			encoded := wire.AppendCommand(nil, cmd)
			theirs := dynamicpb.NewMessage(base)
			require.NoError(t, proto.Unmarshal(encoded, theirs), typ)
			again, err := proto.MarshalOptions{Deterministic: true}.Marshal(theirs)
			require.NoError(t, err)
			ours, err := wire.ParseCommand(again)
			require.NoError(t, err)
			require.Equal(t, cmd, ours, typ)
		}
	}
}

// fill makes random bytes from m's description and decodes them into m, so that defaults apply as they do on the wire.
func fill(t *testing.T, rnd *rand.Rand, m wire.Command) {
	var build func(m wire.Message) []byte
	build = func(m wire.Message) []byte {
		var b []byte
		for _, f := range wire.Describe(m) {
			n := 1
			switch {
			case f.Rule == wire.Repeated:
				n = rnd.Intn(3)
			case f.Rule == wire.Optional:
				n = rnd.Intn(2)
			}
			for range n {
				b = appendRandom(rnd, b, f, build)
			}
		}
		return b
	}
	base := protowire.AppendTag(nil, 1, protowire.VarintType)
	base = protowire.AppendVarint(base, uint64(m.Type()))
	base = protowire.AppendTag(base, protowire.Number(m.Type()), protowire.BytesType)
	filled, err := wire.ParseCommand(protowire.AppendBytes(base, build(m)))
	require.NoError(t, err)
	reflect.ValueOf(m).Elem().Set(reflect.ValueOf(filled).Elem())
}

func appendRandom(rnd *rand.Rand, b []byte, f wire.Field, build func(wire.Message) []byte) []byte {
	switch f.Kind {
	case protoreflect.StringKind, protoreflect.BytesKind:
		b = protowire.AppendTag(b, f.Num, protowire.BytesType)
		return protowire.AppendString(b, string(bytes.Repeat([]byte{'x'}, 1+rnd.Intn(300))))
	case protoreflect.MessageKind:
		b = protowire.AppendTag(b, f.Num, protowire.BytesType)
		return protowire.AppendBytes(b, build(f.Sub))
	}
	v := rnd.Uint64() >> uint(rnd.Intn(64))
	switch f.Kind {
	case protoreflect.BoolKind, protoreflect.EnumKind:
		v = uint64(rnd.Intn(2))
	case protoreflect.Int32Kind:
		v = uint64(int64(int32(rnd.Uint32())))
	case protoreflect.Uint32Kind:
		v = uint64(rnd.Uint32())
	}
	return protowire.AppendVarint(protowire.AppendTag(b, f.Num, protowire.VarintType), v)
}

func TestRequiredFieldsAreEmittedWhenZero(t *testing.T) {
	theirs := dynamicpb.NewMessage(descriptor(t, "BaseCommand"))
	cmd := &cmdMessage{ID: wire.MessageID{Partition: -1, BatchIndex: -1}, Epoch: wire.Absent}
	require.NoError(t, proto.Unmarshal(wire.AppendCommand(nil, cmd), theirs))
}
