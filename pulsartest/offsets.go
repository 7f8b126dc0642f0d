package pulsartest

import "slices"

// offsets is a sorted set of offsets of entries.
type offsets []int

func (o *offsets) addAll(more []int) {
	if len(more) == 0 {
		return
	}
	*o = append(*o, more...)
	slices.Sort(*o)
	*o = slices.Compact(*o)
}

func (o *offsets) remove(offset int) {
	if i, found := slices.BinarySearch(*o, offset); found {
		*o = slices.Delete(*o, i, i+1)
	}
}

func (o *offsets) pop() (int, bool) {
	if len(*o) == 0 {
		return 0, false
	}
	first := (*o)[0]
	*o = (*o)[1:]
	return first, true
}
