package attempts

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// However often frames are written in vain, as while each of them is refused, they take no more memory. How far the log lags is still known.
func TestFramesThatAreWrittenInVain(t *testing.T) {
	c := changes{of: map[place]*ownChange{}}
	const many = 100
	for i := range int64(many) {
		c.put(place{entry: i}, record{})
	}
	began, number := now(), uint64(0)
	for range 50 {
		number++
		places, _ := c.gather(number, began, maxChanges, false)
		require.Len(t, places, many)
		c.again()
	}
	kept := 0
	for _, frame := range c.sent {
		kept += len(frame.places)
	}
	require.LessOrEqual(t, kept, many)
	require.GreaterOrEqual(t, c.lag(began+5000).Seconds(), 5.0)
	number++
	c.gather(number, began, maxChanges, false)
	c.echoed(number)
	require.Empty(t, c.of)
	require.Empty(t, c.sent)
	require.Zero(t, c.lag(began+5000))
}
