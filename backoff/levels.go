package backoff

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// DefaultDelayLevels are the 18 delay levels of PIP-94.
const DefaultDelayLevels = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

// DelayLevels is a list of delays (PIP-94). Level 1 is the first:
//
//	Next(n) = level n+1, or the last level if there are fewer
//
// With DefaultDelayLevels that is 1s, 5s, 10s … 1h, 2h, 2h, 2h … Options refuse DelayLevels that are empty or have
// a negative delay.
type DelayLevels []time.Duration

var units = []struct {
	name string
	unit time.Duration
}{ // "ms" comes before "s", since it also ends in "s"
	{"ms", time.Millisecond}, {"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour},
}

// ParseDelayLevels reads delay levels as PIP-94 writes them: whole positive numbers with a unit of ms, s, m, h or d (24
// hours), separated by white space. An error names the first wrong word.
func ParseDelayLevels(s string) (DelayLevels, error) {
	words := strings.Fields(s)
	if len(words) == 0 {
		return nil, fmt.Errorf("backoff: delay levels %q are empty, want at least one, such as %q", s, "1s 5s 10s")
	}
	levels := make(DelayLevels, len(words))
	for i, word := range words {
		d, err := parseDelay(word)
		if err != nil {
			return nil, fmt.Errorf("backoff: delay level %d: %w", i+1, err)
		}
		levels[i] = d
	}
	return levels, nil
}

func parseDelay(word string) (time.Duration, error) {
	for _, u := range units {
		digits, found := strings.CutSuffix(word, u.name)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		if err != nil || n == 0 {
			break
		}
		if n > uint64(math.MaxInt64/u.unit) {
			return 0, fmt.Errorf("%q is too long, want at most %v", word, time.Duration(math.MaxInt64))
		}
		return time.Duration(n) * u.unit, nil
	}
	return 0, fmt.Errorf("%q is not a delay, want a whole positive number and ms, s, m, h or d, such as %q", word,
		"30s")
}

// Next returns the delay of level redeliveryCount+1, or of the last level if there is no such level. It returns 0 if
// there are no levels.
func (l DelayLevels) Next(redeliveryCount uint32) time.Duration {
	if len(l) == 0 {
		return 0
	}
	return max(0, l[min(uint64(redeliveryCount), uint64(len(l)-1))])
}

// Level returns the delay of a level, from 1 to len(l). Any other level is an error.
func (l DelayLevels) Level(level int) (time.Duration, error) {
	if level < 1 || level > len(l) {
		return 0, fmt.Errorf("backoff: delay level is %d, want 1 to %d", level, len(l))
	}
	return l[level-1], nil
}
