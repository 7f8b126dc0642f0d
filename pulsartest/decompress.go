package pulsartest

import (
	"bytes"
	"compress/zlib"
	"io"

	"github.com/pierrec/lz4/v4"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// decompress returns the plain payload. It reports false if it cannot decompress the payload.
func decompress(m *wire.Metadata, payload []byte) ([]byte, bool) {
	switch m.Compression {
	case wire.NoCompression:
		return payload, true
	case wire.LZ4:
		return lz4Block(payload, int(m.Uncompressed))
	case wire.Zlib:
		r, err := zlib.NewReader(bytes.NewReader(payload))
		if err != nil {
			return nil, false
		}
		plain, err := io.ReadAll(io.LimitReader(r, int64(m.Uncompressed)))
		return plain, err == nil
	}
	return nil, false
}

// lz4Block decompresses one LZ4 block to exactly size bytes.
func lz4Block(in []byte, size int) ([]byte, bool) {
	if size > 255*len(in) { // LZ4 cannot compress better than that
		return nil, false
	}
	out := make([]byte, size)
	n, err := lz4.UncompressBlock(in, out)
	return out, err == nil && n == size
}
