package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// FramePadding is the number of bytes by which a frame may be longer than the message in it.
const FramePadding = 10 * 1024

// magic marks a checksum between a SEND or MESSAGE and its metadata.
const magic = 0x0e01

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrChecksum says that the checksum of a message does not match its bytes.
var ErrChecksum = errors.New("checksum mismatch")

// A Reader reads frames of at most max bytes. Only one goroutine at a time may use it.
type Reader struct {
	r   *bufio.Reader
	max int
	cmd []byte
}

// NewReader returns a Reader over r for messages of up to maxMessage bytes.
func NewReader(r io.Reader, maxMessage int) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 4<<10), max: maxMessage + FramePadding}
}

// Read returns the next command, and the data that follows the command in its frame, such as the message of a SEND. The
// data belongs to the caller; it is nil if nothing follows.
func (r *Reader) Read() (Command, []byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(r.r, head[:4]); err != nil {
		return nil, nil, err
	}
	total := int64(binary.BigEndian.Uint32(head[:4]))
	if total < 4 || total > int64(r.max) {
		return nil, nil, fmt.Errorf("frame of %d bytes; it must have 4 to %d", total, r.max)
	}
	if _, err := io.ReadFull(r.r, head[4:]); err != nil {
		return nil, nil, unexpected(err)
	}
	size := int64(binary.BigEndian.Uint32(head[4:]))
	if size > total-4 {
		return nil, nil, fmt.Errorf("command of %d bytes in a frame of %d", size, total)
	}
	var err error
	r.cmd, err = readFull(r.r, r.cmd, int(size))
	if err != nil {
		return nil, nil, err
	}
	cmd, err := ParseCommand(r.cmd)
	if err != nil {
		return nil, nil, err
	}
	if cap(r.cmd) > 64<<10 {
		r.cmd = nil // frees the buffer: few commands are so large
	}
	rest := total - 4 - size
	if rest == 0 {
		return cmd, nil, nil
	}
	data, err := readFull(r.r, nil, int(rest))
	return cmd, data, err
}

// readFull reads n bytes, into buf if that is large enough. It allocates memory as bytes arrive, since a client may
// announce more bytes than it sends.
func readFull(r io.Reader, buf []byte, n int) ([]byte, error) {
	const first = 4 << 10
	buf = buf[:0]
	if cap(buf) < min(n, first) {
		buf = make([]byte, 0, min(n, first))
	}
	for len(buf) < n {
		if len(buf) == cap(buf) {
			buf = append(make([]byte, 0, min(n, 2*cap(buf))), buf...)
		}
		got, err := io.ReadFull(r, buf[len(buf):min(n, cap(buf))])
		buf = buf[:len(buf)+got]
		if err != nil {
			return nil, unexpected(err)
		}
	}
	return buf, nil
}

// unexpected turns io.EOF inside a frame into io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// AppendFrame appends the frame of cmd, without its message. The caller writes the message, of size bytes, after it; a
// size of 0 means no message.
func AppendFrame(out []byte, cmd Command, size int) []byte {
	start := len(out)
	out = append(out, 0, 0, 0, 0, 0, 0, 0, 0)
	out = AppendCommand(out, cmd)
	command := len(out) - start - 8
	binary.BigEndian.PutUint32(out[start:], uint32(4+command+size))
	binary.BigEndian.PutUint32(out[start+4:], uint32(command))
	return out
}

// Split checks a message as it follows a SEND, and returns its metadata and its payload. It accepts a message without
// a checksum.
func Split(data []byte) (metadata, payload []byte, err error) {
	if len(data) >= 6 && binary.BigEndian.Uint16(data) == magic {
		sum := binary.BigEndian.Uint32(data[2:])
		data = data[6:]
		if crc32.Checksum(data, castagnoli) != sum {
			return nil, nil, ErrChecksum
		}
	}
	if len(data) < 4 {
		return nil, nil, errors.New("message without metadata")
	}
	size := binary.BigEndian.Uint32(data)
	if uint64(size) > uint64(len(data)-4) {
		return nil, nil, fmt.Errorf("metadata of %d bytes in a message of %d", size, len(data))
	}
	return data[4 : 4+size], data[4+size:], nil
}

// Join is the opposite of Split. It returns a message with a checksum.
func Join(metadata *Metadata, payload []byte) []byte {
	meta := marshal(nil, metadata)
	data := make([]byte, 10, 10+len(meta)+len(payload))
	binary.BigEndian.PutUint16(data, magic)
	binary.BigEndian.PutUint32(data[6:], uint32(len(meta)))
	data = append(append(data, meta...), payload...)
	binary.BigEndian.PutUint32(data[2:], crc32.Checksum(data[6:], castagnoli))
	return data
}
