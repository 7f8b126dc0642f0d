package fidelity

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strings"

	_ "github.com/apache/pulsar-client-go/pulsar" // registers the descriptors
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
)

// The tests encode and decode commands by the descriptors of the Go client. With the codec of the broker in process
// they would not notice defects of this codec.

// parse reads messages of one kind of PulsarApi.proto in text form, and merges them. Fields of later messages replace
// fields of earlier messages.
func parse(kind string, texts ...string) *dynamicpb.Message {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("pulsar.proto." + kind))
	if err != nil {
		panic(err)
	}
	sum := dynamicpb.NewMessage(d.(protoreflect.MessageDescriptor))
	for _, text := range texts {
		one := sum.New()
		if err := (prototext.UnmarshalOptions{AllowPartial: true}).Unmarshal([]byte(text),
			one.Interface()); err != nil {
			panic(fmt.Sprintf("%s: %v", text, err))
		}
		proto.Merge(sum, one.Interface())
	}
	return sum
}

// body returns the command in a BaseCommand. The number of the command's field is the BaseCommand's type.
func body(base protoreflect.Message) (name string, m protoreflect.Message) {
	base.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.Message() != nil {
			m = v.Message()
			name = string(base.Descriptor().Fields().ByName("type").Enum().Values().ByNumber(protoreflect.EnumNumber(f.Number())).Name())
		}
		return m == nil
	})
	return name, m
}

func field(m protoreflect.Message, name string) protoreflect.FieldDescriptor {
	return m.Descriptor().Fields().ByName(protoreflect.Name(name))
}

// number returns a field's value; 0 if the message has no such field.
func number(m protoreflect.Message, name string) uint64 {
	f := field(m, name)
	if f == nil {
		return 0
	}
	switch v := m.Get(f).Interface().(type) {
	case uint64:
		return v
	case uint32:
		return uint64(v)
	case int32:
		return uint64(int64(v))
	case int64:
		return uint64(v)
	}
	return 0
}

// noise has the fields whose values differ between brokers.
var noise = []protoreflect.Name{"request_id", "message", "error_message", "brokerServiceUrl",
	"assignedBrokerServiceUrl", "topics_hash",
	"address", "connectedSince", "msgRateOut", "msgThroughputOut", "msgRateRedeliver", "msgRateExpired",
	"messageAckRate"}

// render writes the required fields of m, the fields that differ from their defaults, and an error field if it is
// present: clients treat that as a failure, whatever its value.
func (s *script) render(m protoreflect.Message) string {
	var out []string
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) || slices.Contains(noise, f.Name()) {
			continue
		}
		isError := f.Enum() != nil && f.Enum().Name() == "ServerError"
		if !f.IsList() && f.Message() == nil && f.Cardinality() != protoreflect.Required && !isError &&
			m.Get(f).Equal(f.Default()) {
			continue
		}
		if text := s.value(f, m.Get(f)); text != "" {
			out = append(out, fmt.Sprintf("%s=%s", f.Name(), text))
		}
	}
	return strings.Join(out, " ")
}

func (s *script) value(f protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch {
	case f.IsList():
		var all []string
		for i := range v.List().Len() {
			all = append(all, s.scalar(f, v.List().Get(i)))
		}
		if f.Name() == "topics" {
			all = slices.DeleteFunc(all, func(t string) bool { return !strings.Contains(t, s.topic) })
			slices.Sort(all)
		}
		return fmt.Sprint(all)
	case f.Name() == "producer_name" && strings.Count(v.String(), "-") == 2 &&
		strings.HasPrefix(v.String(), "standalone-"):
		return "made-up"
	}
	return s.scalar(f, v)
}

func (s *script) scalar(f protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch {
	case f.Message() != nil && f.Message().Name() == "MessageIdData":
		return s.id(readID(v.Message()))
	case f.Message() != nil:
		return "{" + s.render(v.Message()) + "}"
	case f.Enum() != nil:
		if e := f.Enum().Values().ByNumber(v.Enum()); e != nil {
			return string(e.Name())
		}
		return fmt.Sprint(v.Enum())
	case f.Kind() == protoreflect.Uint64Kind:
		return fmt.Sprint(int64(v.Uint()))
	case f.Name() == "ack_set":
		return fmt.Sprintf("%b", v.Int())
	case f.Kind() == protoreflect.BytesKind:
		return fmt.Sprintf("%x", v.Bytes())
	case f.Kind() == protoreflect.StringKind:
		return fmt.Sprintf("%q", v.String())
	}
	return fmt.Sprint(v.Interface())
}

// messageID is a MessageIdData. The zero value is not an id.
type messageID struct {
	ledger, entry    uint64
	partition, index int32
	left             []int64 // the ack set, with a bit for each unacknowledged message
	size             int32
}

var (
	earliest = messageID{ledger: math.MaxUint64, entry: math.MaxUint64, partition: -1, index: -1}
	latest   = messageID{ledger: math.MaxInt64, entry: math.MaxInt64, partition: -1, index: -1}
)

func readID(m protoreflect.Message) messageID {
	id := messageID{ledger: number(m, "ledgerId"), entry: number(m, "entryId"),
		partition: int32(number(m, "partition")),
		index:     int32(number(m, "batch_index")), size: int32(number(m, "batch_size"))}
	set := m.Get(field(m, "ack_set")).List()
	for i := range set.Len() {
		id.left = append(id.left, set.Get(i).Int())
	}
	return id
}

// text returns the id in prototext.
func (id messageID) text() string {
	out := fmt.Sprintf("ledgerId: %d entryId: %d partition: %d batch_index: %d", id.ledger, id.entry, id.partition,
		id.index)
	for _, word := range id.left {
		out += fmt.Sprintf(" ack_set: %d", word)
	}
	if id.size > 0 {
		out += fmt.Sprintf(" batch_size: %d", id.size)
	}
	return out
}

// keep returns the id with an ack set and the size of the batch. The set has a 1 bit for each message that stays
// unacknowledged.
func (id messageID) keep(set int64, size int32) messageID {
	id.left, id.size = []int64{set}, size
	return id
}

// at returns the id of entry n of the same ledger.
func (id messageID) at(n int64) messageID {
	id.entry = uint64(n)
	return id
}

// batchIndex returns the id of message n of the batch.
func (id messageID) batchIndex(n int32) messageID {
	id.index = n
	return id
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// join returns the bytes after a SEND: checksum, metadata and payload.
func join(metadata proto.Message, payload []byte) []byte {
	meta, err := proto.MarshalOptions{AllowPartial: true}.Marshal(metadata)
	if err != nil {
		panic(err)
	}
	data := []byte{0x0e, 0x01, 0, 0, 0, 0}
	data = binary.BigEndian.AppendUint32(data, uint32(len(meta)))
	data = append(append(data, meta...), payload...)
	binary.BigEndian.PutUint32(data[2:], crc32.Checksum(data[6:], castagnoli))
	return data
}

// split is the reverse of join.
func split(data []byte) (metadata *dynamicpb.Message, payload []byte, err error) {
	if len(data) < 10 || data[0] != 0x0e || data[1] != 0x01 || crc32.Checksum(data[6:],
		castagnoli) != binary.BigEndian.Uint32(data[2:]) {
		return nil, nil, fmt.Errorf("no checksum, or a wrong one: %x", data[:min(len(data), 20)])
	}
	size := binary.BigEndian.Uint32(data[6:])
	metadata = parse("MessageMetadata")
	if err := proto.Unmarshal(data[10:10+size], metadata); err != nil {
		return nil, nil, err
	}
	return metadata, data[10+size:], nil
}
