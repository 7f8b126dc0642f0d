package wire

import "google.golang.org/protobuf/encoding/protowire"

// Metadata is the part of a message's metadata that the broker and its tools need. The broker forwards the original
// bytes.
type Metadata struct {
	ProducerName  string
	SequenceID    uint64
	PublishTime   uint64
	Properties    []KeyValue
	Key           Key
	Compression   Compression
	Uncompressed  uint32
	BatchSize     int32
	EventTime     uint64
	Encryption    string
	SchemaVersion []byte
	DeliverAt     int64
	HighestID     uint64
	NullValue     bool
	Chunk         Chunk
}

// Key is the key that a message is routed and ordered by.
type Key struct {
	Partition string
	IsBase64  bool
	Ordering  []byte
}

// Chunk says which part of a large message an entry is.
type Chunk struct {
	UUID  string
	Total int32
	ID    int32 // -1 if the entry is not a chunk
}

// Compression is the codec of a payload.
type Compression int32

// The codecs.
const (
	NoCompression Compression = 0
	LZ4           Compression = 1
	Zlib          Compression = 2
)

func (m *Metadata) Fields(c *Codec) {
	c.String(1, Required, &m.ProducerName)
	c.Uint64(2, Required, 0, &m.SequenceID)
	c.Uint64(3, Required, 0, &m.PublishTime)
	Many(c, 4, &m.Properties)
	c.String(6, Optional, &m.Key.Partition)
	Enum(c, 8, Optional, &m.Compression)
	c.Uint32(9, Optional, 0, &m.Uncompressed)
	c.Int32(11, Optional, 1, &m.BatchSize)
	c.Uint64(12, Optional, 0, &m.EventTime)
	c.String(14, Optional, &m.Encryption)
	c.Bytes(16, Optional, &m.SchemaVersion)
	c.Bool(17, Optional, false, &m.Key.IsBase64)
	c.Bytes(18, Optional, &m.Key.Ordering)
	c.Int64(19, Optional, 0, &m.DeliverAt)
	c.Uint64(24, Optional, 0, &m.HighestID)
	c.Bool(25, Optional, false, &m.NullValue)
	c.String(26, Optional, &m.Chunk.UUID)
	c.Int32(27, Optional, 0, &m.Chunk.Total)
	c.Int32(29, Optional, -1, &m.Chunk.ID)
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

func (m *BatchMetadata) Fields(c *Codec) {
	Many(c, 1, &m.Properties)
	c.String(2, Optional, &m.Key)
	c.Int32(3, Required, 0, &m.Size)
	c.Uint64(5, Optional, 0, &m.EventTime)
	c.Bool(6, Optional, false, &m.KeyIsBase64)
	c.Bytes(7, Optional, &m.OrderingKey)
	c.Uint64(8, Optional, 0, &m.SequenceID)
	c.Bool(9, Optional, false, &m.NullValue)
}

// ParseBatchMetadata decodes the metadata of one message of a batch.
func ParseBatchMetadata(b []byte) (BatchMetadata, error) {
	var m BatchMetadata
	err := unmarshal(b, &m)
	return m, err
}

// IsBatch reports whether b is the metadata of a batch. Such metadata names the number of messages, even if it is 1.
func IsBatch(b []byte) (batch bool) {
	_ = eachField(b, func(num protowire.Number, _ protowire.Type, _ []byte) { batch = batch || num == 11 })
	return batch
}
