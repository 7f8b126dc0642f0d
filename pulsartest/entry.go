package pulsartest

import (
	"encoding/base64"
	"fmt"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// entry is the content of one SEND: a message, a batch or a chunk. It never changes once it is in a topic.
type entry struct {
	ledger, id  uint64
	data        []byte // as the client sent it: checksum, metadata, payload
	messages    int    // number of messages in a batch, else 1
	counted     int    // number of messages that the SEND named
	batch       bool   // a batch, even if of one message
	publishTime uint64 // ms
	deliverAt   int64  // ms; 0 if the message is not delayed
	hash        uint32 // of the key, for Key_Shared
	uuid        string // of the chunked message, if this is a chunk
}

// maxBatch is the largest number of messages in a batch. No client sends so many. The limit bounds the memory of an
// acknowledgement, which has a bit for each message.
const maxBatch = 1 << 20

// newEntry checks the data that follows a SEND, and returns its entry.
func newEntry(m *cmdSend, data []byte) (*entry, error) {
	raw, _, err := wire.Split(data)
	if err != nil {
		return nil, err
	}
	metadata, err := wire.ParseMetadata(raw)
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	e := &entry{
		data:        data,
		messages:    int(max(metadata.BatchSize, 1)),
		counted:     int(max(m.Messages, 1)),
		batch:       wire.IsBatch(raw),
		publishTime: metadata.PublishTime,
		deliverAt:   metadata.DeliverAt,
		hash:        keyHash(stickyKey(&metadata)),
	}
	if metadata.Chunk.Total > 1 {
		e.uuid = metadata.Chunk.UUID
	}
	if metadata.BatchSize > maxBatch {
		return nil, fmt.Errorf("batch of %d messages, want at most %d", metadata.BatchSize, maxBatch)
	}
	return e, nil
}

// stickyKey returns the key that Key_Shared hashes: the ordering key, else the key, else something that differs from
// message to message.
func stickyKey(m *wire.Metadata) []byte {
	switch {
	case len(m.Key.Ordering) > 0:
		return m.Key.Ordering
	case m.Key.Partition != "" && m.Key.IsBase64:
		if key, err := base64.StdEncoding.DecodeString(m.Key.Partition); err == nil {
			return key
		}
		return []byte(m.Key.Partition)
	case m.Key.Partition != "":
		return []byte(m.Key.Partition)
	}
	return fmt.Appendf(nil, "%s-%d", m.ProducerName, m.SequenceID)
}

// before reports whether e's position is before (ledger, id).
func (e *entry) before(ledger, id uint64) bool {
	return e.ledger < ledger || e.ledger == ledger && e.id < id
}
