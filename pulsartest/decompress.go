package pulsartest

import (
	"bytes"
	"compress/zlib"
	"io"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// decompress returns the plain payload, and whether it could.
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
	out := make([]byte, 0, min(size, 255*len(in))) // it compresses no better
	length := func(n int) (int, bool) {
		if n < 15 {
			return n, true
		}
		for {
			if len(in) == 0 {
				return 0, false
			}
			b := in[0]
			in = in[1:]
			n += int(b)
			if b < 255 {
				return n, n <= size
			}
		}
	}
	for len(in) > 0 {
		token := in[0]
		in = in[1:]
		literals, ok := length(int(token >> 4))
		if !ok || literals > len(in) || len(out)+literals > size {
			return nil, false
		}
		out = append(out, in[:literals]...)
		in = in[literals:]
		if len(in) == 0 { // the last sequence has no match
			break
		}
		if len(in) < 2 {
			return nil, false
		}
		back := int(in[0]) | int(in[1])<<8
		in = in[2:]
		match, ok := length(int(token & 15))
		match += 4
		if !ok || back == 0 || back > len(out) || len(out)+match > size {
			return nil, false
		}
		for range match { // it may overlap what it writes
			out = append(out, out[len(out)-back])
		}
	}
	return out, len(out) == size
}
