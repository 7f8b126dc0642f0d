package wire

import "google.golang.org/protobuf/encoding/protowire"

// Metadata is what the broker, or somebody who looks into it, has to know of
// a message. The broker forwards the original bytes.
type Metadata struct {
	ProducerName  string
	SequenceID    uint64
	PublishTime   uint64
	Properties    []KeyValue
	PartitionKey  string
	Compression   Compression
	Uncompressed  uint32
	BatchSize     int32
	EventTime     uint64
	Encryption    string
	SchemaVersion []byte
	KeyIsBase64   bool
	OrderingKey   []byte
	DeliverAt     int64
	HighestID     uint64
	NullValue     bool
	UUID          string
	Chunks        int32
	ChunkID       int32 // -1 when it is not a chunk
}

// Compression is the codec of a payload.
type Compression int32

// The codecs.
const (
	NoCompression Compression = 0
	LZ4           Compression = 1
	Zlib          Compression = 2
)

func (m *Metadata) fields(c *codec) {
	c.string(1, required, &m.ProducerName)
	c.uint64(2, required, 0, &m.SequenceID)
	c.uint64(3, required, 0, &m.PublishTime)
	many(c, 4, &m.Properties)
	c.string(6, optional, &m.PartitionKey)
	enum(c, 8, optional, &m.Compression)
	c.uint32(9, optional, 0, &m.Uncompressed)
	c.int32(11, optional, 1, &m.BatchSize)
	c.uint64(12, optional, 0, &m.EventTime)
	c.string(14, optional, &m.Encryption)
	c.bytes(16, optional, &m.SchemaVersion)
	c.bool(17, optional, false, &m.KeyIsBase64)
	c.bytes(18, optional, &m.OrderingKey)
	c.int64(19, optional, 0, &m.DeliverAt)
	c.uint64(24, optional, 0, &m.HighestID)
	c.bool(25, optional, false, &m.NullValue)
	c.string(26, optional, &m.UUID)
	c.int32(27, optional, 0, &m.Chunks)
	c.int32(29, optional, -1, &m.ChunkID)
}

// ParseMetadata decodes a message's metadata.
func ParseMetadata(b []byte) (Metadata, error) {
	var m Metadata
	err := unmarshal(b, &m)
	return m, err
}

// BatchMetadata precedes each message of a batch.
type BatchMetadata struct {
	Properties  []KeyValue
	Key         string
	Size        int32
	EventTime   uint64
	KeyIsBase64 bool
	OrderingKey []byte
	SequenceID  uint64
	NullValue   bool
}

func (m *BatchMetadata) fields(c *codec) {
	many(c, 1, &m.Properties)
	c.string(2, optional, &m.Key)
	c.int32(3, required, 0, &m.Size)
	c.uint64(5, optional, 0, &m.EventTime)
	c.bool(6, optional, false, &m.KeyIsBase64)
	c.bytes(7, optional, &m.OrderingKey)
	c.uint64(8, optional, 0, &m.SequenceID)
	c.bool(9, optional, false, &m.NullValue)
}

// ParseBatchMetadata decodes the metadata of one message of a batch.
func ParseBatchMetadata(b []byte) (BatchMetadata, error) {
	var m BatchMetadata
	err := unmarshal(b, &m)
	return m, err
}

// IsBatch reports whether metadata b says how many messages there are: then it
// is a batch, also of one.
func IsBatch(b []byte) bool {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		if num == 11 {
			return true
		}
		size := protowire.ConsumeFieldValue(num, typ, b[n:])
		if size < 0 {
			return false
		}
		b = b[n+size:]
	}
	return false
}
