package attempts

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func testFrames() []frame {
	return []frame{
		{flags: begins | leases, session: 7, number: 1, name: "a", lease: 6000, changes: []change{}},
		{session: 7, number: 2, checkpoint: position{3, 4}, changes: []change{
			{Key: one, count: 3, delay: 1000, cause: "no coffee", session: 7},
			{Key: two, removed: true, session: 7},
			{Key: Key{"t", 1, 0, 0}, count: 1, crashes: 2, begun: 7, session: 7}}},
		{flags: copies | ends, session: 7, number: 3, asOf: position{3, 9},
			sessions: []sessionCopy{{id: 9, name: "b", lease: 5, age: 4, silent: 3}},
			changes:  []change{{Key: one, count: 3, delay: -1000, age: 5, cause: "b", session: 9, begun: 11}}},
	}
}

func TestFramesAreReadAsWritten(t *testing.T) {
	for _, f := range testFrames() {
		read, err := decode(f.encode())
		require.NoError(t, err)
		require.Equal(t, f, read)
	}
	_, err := decode([]byte{9})
	require.ErrorContains(t, err, "version 9")
}

func TestFramesAreSmall(t *testing.T) {
	f := frame{session: 1 << 60, number: 1000}
	for i := range maxChanges {
		f.changes = append(f.changes, change{Key: Key{one.Topic, 123456, int64(i * 3), 0}, count: 3, delay: 60000,
			cause: "no coffee"})
	}
	require.Less(t, len(f.encode()), 11*maxChanges)
}

// No message of a topic, whatever its bytes, causes a panic or takes more memory than its size allows.
func FuzzDecode(f *testing.F) {
	for _, x := range testFrames() {
		f.Add(x.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := decode(b)
		if err != nil {
			return
		}
		s := newState()
		s.apply(readFrame{frame: x, at: position{1, 1}})
		again, err := decode(x.encode())
		require.NoError(t, err)
		require.Equal(t, x, again)
	})
}
