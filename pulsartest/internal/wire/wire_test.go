package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Two commands, one without fields.

type ping struct{}

var typePing = Register[ping](18, "PING")

func (*ping) Type() Type    { return typePing }
func (*ping) Fields(*Codec) {}

type hello struct {
	Name string
	ID   *MessageID
}

var typeHello = Register[hello](4, "SUBSCRIBE")

func (*hello) Type() Type { return typeHello }

func (m *hello) Fields(c *Codec) {
	c.String(1, Required, &m.Name)
	One(c, 2, Optional, &m.ID)
}

func TestCommandsAreRegisteredOnce(t *testing.T) {
	require.PanicsWithValue(t, "wire: PING and AGAIN are both command 18", func() { Register[ping](18, "AGAIN") })
	require.Len(t, Commands(), 2)
	require.Equal(t, "PING", typePing.String())
	require.Equal(t, "COMMAND_99", Type(99).String())
}

func TestFieldsOfACommandComeInAnyOrder(t *testing.T) {
	want := &hello{Name: "n", ID: &MessageID{Ledger: 3, Entry: 4, Partition: -1, BatchIndex: -1}}
	b := AppendCommand(nil, want)
	b = append(b[2:], b[:2]...) // the type last
	got, err := ParseCommand(b)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestReaderRefusesBadFrames(t *testing.T) {
	pinged := AppendFrame(nil, &ping{}, 0)
	frame := func(total, size uint32, rest string) []byte {
		b := binary.BigEndian.AppendUint32(nil, total)
		b = binary.BigEndian.AppendUint32(b, size)
		return append(b, rest...)
	}
	for name, in := range map[string][]byte{
		"truncated length":  pinged[:2],
		"truncated frame":   pinged[:len(pinged)-1],
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
	cmd, data, err := NewReader(bytes.NewReader(pinged), 1000).Read()
	require.NoError(t, err)
	require.Equal(t, &ping{}, cmd)
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
	f.Add(AppendFrame(nil, &ping{}, 0))
	f.Add(AppendFrame(nil, &hello{Name: "t", ID: &MessageID{Ledger: 1}}, 0))
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
